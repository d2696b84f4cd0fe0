"""Commands that read a cluster: pull, mirror, topics (also offsets), and log_offsets (offsets of a log)."""
