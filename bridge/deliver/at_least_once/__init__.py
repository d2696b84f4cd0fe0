"""At least once: an idempotent producer; what arrived before a crash is read back and not sent again.

Read in this order: driver (what is done), engine (the state machine), lanes (a lane, and its
bisection), window, batch_planner, sender (from the engine to the producer), topics (partitions), deduplicate
(reads partitions back), found (what of that counts as a duplicate), lane_reports. engine, lanes,
window, batch_planner and found are pure.
"""
