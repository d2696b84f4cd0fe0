"""What a user configures: a file or options, checked whole before anything starts.

It owns types, bounds and defaults, the rules of routing, and where secrets are read (settings). It
connects to nothing, and does not know how a value is used.

Read in this order: names (of cursors, servers, addresses), settings (of the Kafka client; secrets),
routing (where a record goes), transform (a function by its name), models (every key), files (reads a file,
reports what is wrong).
"""
