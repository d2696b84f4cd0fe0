"""What a directory of slabs is: the parts that writers, readers and tools share.

Read in this order: slab_list (the slabs by their names), log_tree (which directories are logs), directory (the
log: its slabs, opened), slab_file (one slab), walk (frames of a slab, over damage), identity (to which log its
slabs belong), log_format (which format they have), lock (all locks), manifest (published slabs), cursor_file,
retention (which slabs are pruned), interruption (what may end a call), tiers (a log and its archive),
units (sizes and durations as text). Nothing here appends a record or returns one.
"""
