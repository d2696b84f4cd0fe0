"""`Buffer`: a program sends messages, and the Buffer delivers them, live or through a log.

It owns the order of messages, the switch from live to buffered and back, and what happens at the end.
It knows a destination only as a `Provider`: six names. It does not forward logs of other programs.

Read in this order: buffer (what users call), store_forward (a failure turns live into buffered), settings,
memory_queue, backlog (a log and its cursor), provider_sender (batches and retries), provider (the
protocol), kafka_provider, file_provider, aio (for asyncio).
"""
