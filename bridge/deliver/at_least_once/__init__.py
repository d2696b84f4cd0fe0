"""At least once: an idempotent producer; what arrived before a crash is read back and not sent again.

Read in this order: delivery (the shell), engine (the state machine), partition_state (a lane, and its
bisection), window, batch_planner, sender (from the engine to the producer), topics (partitions), deduplicate
(reads partitions back), found (what of that counts as a duplicate), lane_reports. engine, partition_state,
window, batch_planner and found are pure.
"""
