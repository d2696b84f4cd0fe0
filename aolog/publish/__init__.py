"""Slabs that are written before their place in a log is known, and published all at once.

    pending.py      a task writes sealed, synced slabs under pending names, in any process
    publication.py  one process gives them their places, in all logs of the job, by one rename
    completion.py   what a pending slab's header did not say yet
    forward.py      what a killed publication left is finished by the next holder of the log's lock
    leftovers.py    what dead tasks left is removed

What is published, and which transactions it was, stands in aolog/log/manifest.py's file; FORMAT.md says
the rules. Spark's sink is made of this; it needs no Spark.
"""
