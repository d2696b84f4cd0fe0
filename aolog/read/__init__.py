"""Reader: from slabs to records, batches and Arrow.

Read in this order: reader (what users call), scan (batches in order, with gaps), batch and arrow (their
forms), seek (where to begin), cursor and committing (a durable position), lag, ranges (a log in parts, for
Spark). Nothing here changes a log but for its cursor files.
"""
