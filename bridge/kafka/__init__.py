"""All that knows a Kafka client, but for `bridge.buffer.kafka_provider`.

Read in this order: client (settings, errors and connections shared by all), error_table (whose fault an
error is), origin (the header that says where a record came from), producer and queueing (at least once),
transactional_producer with its outcomes and cursor_topic (exactly once), hanging_transactions, read_back
(what arrived), identity (which cluster), topic_creation and topic_settings, embedded (a cluster inside
this process).
"""
