"""Everything that uses a Kafka client. The room knows no log and
no delivery: it sends rows, commits transactions, reads partitions, and reports what happens.

Read in this order: client (shared settings and exceptions), error_table (whose fault an error is),
lane, stamp (where a record came from), messages and admission (records as the client takes them,
and which a topic refuses), queueing and producer (at least once); transactional_producer (where a
transaction is committed) with its outcomes, ownership, cursor_topic, ends and hanging_transactions
(exactly once); read_back, identity, topic_creation, topic_settings, stalls; catalog, fetcher and
runs (what a cluster has, and reading it, as columns: for `bridge.pull` and commands); provider
(Kafka for a `bridge.Buffer`); settings (which a user may give); embedded (a test cluster in this
process)."""
