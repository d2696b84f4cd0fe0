"""`Buffer`: a program sends to a destination as if it were always there.

Read in this order: buffer (what users call), store_forward (live or through the backlog), backlog (a log and
its cursor), provider_sender, provider (the protocol and the simple ones), kafka_provider, rejected.
"""
