"""Tools for a log that may be damaged: verify, repair, salvage. They read the log and never write into it.

Read in this order: audit (one pass over every frame), verify (the report), baseline (gaps that are
known), copy and repair (a clean copy), salvage (what damaged frames still hold), signatures. This room knows the
log and its format. No writer or reader needs this room.
"""
