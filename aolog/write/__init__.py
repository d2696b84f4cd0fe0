"""Writer: from `append` to the device.

Read in this order: writer (what users call; it is also the open frame, aolog/format/native/inlet.py), options
and validate (what is checked first), record_columns, arrow and given_columns (many records at once), log_tail (frames into
the file and onto the device), active_slab (frames in the slab that grows), slab_chain and next_slab (one slab
after another), pruned_unread (the losses to retention), group_commit (many callers, one sync), background (the writer's own threads); then opening,
recovery_cases and cut_tail (what a crash left); signed (records with a signature), log_handler (Python's
logging). A value is copied when it is appended, and once more into its frame: the file gets that buffer.
Nothing here returns a record that was written.
"""
