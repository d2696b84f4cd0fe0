"""Exactly once: records and cursor in one transaction of Kafka's.

Read in this order: delivery (the shell), transactions (a pure state machine), prefetch (batches read while a
transaction is open).
"""
