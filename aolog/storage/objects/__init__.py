"""Object stores: requests and answers as values, the client that sends them, and logs read through it.

Read in this order: url (which store and prefix), requests (what is asked and answered), client (the only
module that imports obstore), read_ahead (ranges of one object), system (a read-only `System`: archives, and
copies of logs). Nothing here interprets records.
"""
