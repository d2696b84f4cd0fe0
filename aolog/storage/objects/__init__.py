"""Object stores: requests and answers as values, the client that sends them, and logs read through it.

Read in this order: requests (what is asked and answered; pure).
Nothing here interprets records.
"""
