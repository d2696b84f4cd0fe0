"""Writer: from `append` to the device.

Read in this order: writer (what users call), options and validate (what is checked first), log_tail
(records into batches, batches into frames, frames into the file and onto the device), open_batch and
record_columns (records in memory, one by one and many at once), active_slab (frames in the slab that
grows), slab_chain and next_slab (one slab after another), group_commit (many callers, one sync),
background (the writer's own threads); then opening, recovery_cases and cut_tail (what a crash left);
then plain_columns and arrow (columns that are checked at once); signed (records with a signature),
log_handler (Python's logging). A value is copied for the last time when its batch becomes a frame
(aolog/format/columns.py): the file gets that buffer. Nothing here returns a record that was written.
"""
