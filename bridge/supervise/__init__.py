"""Many logs in one process: which logs exist, a worker for each, turns, retries, reload (SIGHUP).

It owns when a log is forwarded, and the status that users see. It does not know how records are
delivered (`bridge.deliver`), nor how a status is shown (`bridge.operate`, `bridge.cli`).

Read in this order: turns (a pure state machine: when one log runs), supervisor (all logs), worker (one log, in
a thread), assignment (which logs go to which cluster), discovery (logs below a root), cluster_options (of a
forwarder), reload (SIGHUP), idle_clusters, status; archiving (in an object store, beside all of that).
"""
