"""Format 1: queuefka's logs, read and written as its Go program does.

Read in this order: format1 (the bytes), slab (the one that grows).
"""
