"""Slabs that tasks write before their position in a log is known, and that are published all at once.

    pending.py      a task writes sealed, synced slabs under pending names, in any process
    publication.py  one process completes their headers and publishes them in all logs of the job,
                    by one rename
    objects.py      the same in an object store, by one compare-and-swap
    many_logs.py    a view of many logs has all of a publication or nothing
    leftovers.py    removes the pending slabs of dead tasks

The next holder of a log's lock completes a publication that was killed. The manifest (aolog/log/manifest.py)
names the published slabs and their transactions; FORMAT.md has the rules. Spark's sink uses this room; this room
does not need Spark.
"""
