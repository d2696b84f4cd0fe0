"""For a log that is damaged or doubted: verify, repair, salvage.

Read in this order: audit (a slab, frame by frame), verify (a report on a log), copy and repair (a clean
copy), salvage (what damaged frames still hold). No writer or reader needs this room.
"""
