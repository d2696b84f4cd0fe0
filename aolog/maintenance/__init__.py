"""Tools for a log that may be damaged: verify, repair, salvage; and its archive in an object store.
They never write into the log, except the archive's cursor.

Read in this order: audit (one pass over every frame), verify and report (the report), baseline
(known gaps), copy and repair (a clean copy, a backup), salvage (the remains of damaged frames),
signatures, archive/. This room depends on the log, its format and its readers. No writer or reader
needs it.
"""
