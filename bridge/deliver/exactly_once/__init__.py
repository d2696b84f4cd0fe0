"""Exactly once: records and the cursor after them in one transaction of Kafka. The room decides when a
transaction is committed; `bridge.kafka.transactional_producer` carries it out.

Read in this order: driver (what is done), engine (a pure state machine), prefetch (batches that are
read while a transaction is committed), partitions (of the topics), sender (puts them), refusals (what to do
when the cluster refuses something).
"""
