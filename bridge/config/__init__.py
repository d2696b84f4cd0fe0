"""What a user configures: a file or options, checked whole before anything starts.

It owns types, bounds and defaults, the rules of routing, and where secrets are read (settings). It
connects to nothing, and does not know how a value is used. Settings of the Kafka client are checked
by `bridge.kafka`.

Read in this order: names (of topics, cursors, servers, addresses, functions), settings (of the Kafka client;
secrets, files that are replaced), routing (where a record goes), models (every key), load (reads a file,
reports what is wrong).
"""
