"""Slabs that are written before their place in a log is known, and published all at once.

    pending.py      a task writes sealed, synced slabs under pending names, in any process
    publication.py  one process gives them their places, in all logs of the job, by one rename
    completion.py   what a pending slab's header did not say yet
    ../log/publications.py   finishes what a killed publication left, for the next holder of the lock
    leftovers.py    what dead tasks left is removed

The file of aolog/log/manifest.py names the published slabs and their transactions; FORMAT.md says
the rules. Spark's sink is made of this; it needs no Spark.
"""
