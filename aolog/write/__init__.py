"""Writer: from `append` to the device.

Read in this order: writer (what users call), options and validate (what is checked first), log_tail
(records into batches, batches into frames, frames into the file and onto the device), open_batch (records
in memory), active_slab (frames in the slab that grows), rolling and next_slab (one slab after another),
group_commit (many callers, one sync), background (what is done when nobody calls); then opening and
recovery (what is done with what a crash left); signed (records with a signature). Nothing here returns a record that was written.
"""
