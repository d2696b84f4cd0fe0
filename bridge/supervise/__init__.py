"""Many logs in one process: which there are, a worker each, reloading.

Read in this order: supervisor, worker (one log, again and again), discovery (logs below a root).
"""
