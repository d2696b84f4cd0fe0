"""Exactly once: records and the cursor after them in one transaction of Kafka. The room decides when a
transaction is committed; `bridge.kafka.transactional_producer` carries it out.

Read in this order: driver (what is done), engine (a pure state machine), partitions (of the topics), sender
(reads batches while a transaction is committed, and puts them into the next), refusals (what to do when the
cluster refuses something).
"""
