"""Format 1: queuefka's logs, read and written as its Go program does.

Read in this order: format1 (the bytes), framing (for the walker), identity (for a cursor), slab (the one that
grows), recovery (the last slab, for a writer). Slabs have no headers, marks and seals, records are values alone
and are not counted: other rooms ask a slab, a log or the writer's options `has_headers`, and know no number of a
format.
"""
