"""Tools for a log that may be damaged: verify, repair, salvage. They never write into the log.

Read in this order: audit (one pass over every frame), verify and report (the report), baseline
(known gaps), copy and repair (a clean copy, a backup), salvage (the remains of damaged frames),
signatures. This room depends on the log and its format. No writer or reader needs it.
"""
