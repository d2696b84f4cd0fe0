"""One log to one Kafka cluster: read, route, admit, send, acknowledge, commit, prune.

Read in this order: forwarder_options and forwarder (the life of one delivery);
log_source (the log and its cursor); transform and router (which record goes to which
partition), verdicts (what becomes of a refused one) and intake (the next batch, judged); then
`at_least_once` or `exactly_once`; committer (where the cursor passes a record), checkpoints and
checkpoint_file, dead_letter; losses and known_gaps (what is lost, counted once, and kept); status, trouble
and log_lines (what is said of it); backoff and rate_limit. seek and replay move a cursor by hand. This room
does not know that there are other logs.
"""
