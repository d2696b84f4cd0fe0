"""Format 1: queuefka's logs, read and written as its Go program does.

Read in this order: format1 (the bytes), framing (for the walker), slab (the one that grows), recovery (the
last slab, for a writer). Slabs have no headers, marks and seals, and records are not counted: other rooms
ask a slab or a log `has_headers`.
"""
