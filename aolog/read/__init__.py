"""Reader: from slabs to records, batches and Arrow.

Read in this order: reader (what users call), view (what it holds; fail-stop), scan (frames and gaps in
order), gaps (how far a scan got, and the count of a gap's loss), seek (where a scan begins), batch (frames and
their records), arrow (columns to Arrow), cursor (a durable position), start (positions as people write them), lag, ranges (a log in parts, for Spark).
Nothing here changes a log except its cursor files.
"""
