"""A directory of slabs: the parts that writers, readers and tools share.

Read in this order: directory (the log and its slabs), listing (which files are slabs), identity and
evidence (whose they are), walk (frames of a slab, over damage), lock (one writer), manifest (published
slabs), cursor_file, retention and pruned (what may go, and what that lost), lifetime (forks and exits).
Nothing here appends a record or returns one.
"""
