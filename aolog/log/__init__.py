"""What a directory of slabs is: the parts that writers, readers and tools share.

Read in this order: names (of all files), directory (the log), slab_file (one slab), listing (which files
are slabs), walk and walk_format1 (frames of a slab, over damage), identity and evidence (whose slabs
they are), lock, admission (checks before writing), manifest, snapshot and forward (published slabs),
cursor_file, retention and pruned (what is removed, and what that lost), lifetime (forks and exits).
Nothing here appends a record or returns one.
"""
