"""At least once: an idempotent producer, and what arrived is read back after a crash.

Read in this order: delivery (the shell), engine (a pure state machine), commands, partition_state, window,
batch_planner, sender, topics, arrivals and recognise (what arrived is not sent again).
"""
