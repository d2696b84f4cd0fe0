"""What a user configures: a file or options, checked whole before anything starts.

It owns types, bounds and defaults, the rules of routing, and where secrets are read (secrets). It
connects to nothing, and does not know how a value is used. Settings of the Kafka client are checked
by `bridge.kafka`.

Read in this order: names (of topics, cursors, servers, addresses), named_function (of the user's), secrets
and current_text (files that are replaced), settings (of the Kafka client), routing and partition (where a
record goes), models (every key), load (reads a file, reports what is wrong).
"""
