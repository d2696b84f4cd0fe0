"""Reader: from slabs to records, batches and Arrow.

Read in this order: reader (what users call), scan (frames and gaps in order), seek (where a scan
begins), record_frame and batch (their records), arrow (columns to Arrow), gap_report, cursor (a durable
position), lag, ranges (a log in parts, for Spark). Nothing here changes a log except its cursor files.
"""
