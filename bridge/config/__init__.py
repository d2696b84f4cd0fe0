"""What a user configures: a file or options, checked whole before anything starts.

It owns types, bounds and defaults, the rules of routing, and where secrets are read (secrets). It
connects to nothing, and does not know how a value is used.

Read in this order: names (of cursors, servers, addresses), secrets, settings (of the Kafka client),
routing (where a record goes), models (every key), load (reads a file,
reports what is wrong).
"""
