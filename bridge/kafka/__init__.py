"""Everything that uses a Kafka client. The room knows no log and no delivery: it sends messages, commits
transactions, reads partitions, and reports what happens.

Read in this order: client (what all clients share), known_settings, settings (which a user may give),
error_table (whose fault an error is), lane (and topics), stamp (where a record came from), messages (records as
columns, as the client takes them), client_limits and admission (what the client and a topic refuse), events
(what a producer reports), plugin, queueing, connection (a client and its cluster) and producer (at least once).
For exactly once: transactional_producer (where a transaction is committed) with ownership, cursor_record,
cursor_topic and hanging_transactions. What they ask a cluster: read_back, identity, topic_creation,
topic_settings, stalls, cluster_watch; telemetry (what is measured). Then catalog, consumed, runs and fetcher (what
a cluster has, and reading it, as columns: for `bridge.pull` and commands) and embedded (a test cluster in this
process).
"""
