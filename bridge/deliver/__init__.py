"""One log to one Kafka cluster, for both guarantees: read, route, admit, send, acknowledge, commit, prune.

Read in this order: forwarder (the life of one delivery), log_source (the log, its cursor), messages and
partitioner (which record goes to which partition), admission, then `at_least_once` or `exactly_once`;
committer, checkpoints, dead_letter, losses, rate_limit; seek and replay move a cursor by hand. Nothing here
knows that there are other logs.
"""
