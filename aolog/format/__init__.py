"""Bytes only, no I/O: how records become frames and frames become slabs, and back.

Read in this order: columns (records to a body), compression, frame (header, body, checksum), slab (header
and seal of a segment file), framing (how frames follow one another: a format's small interface), stretch
(frames together), arrow_schema, origin (the header that the bridge adds to a Kafka record),
signature; then what is beside the slabs: names (of all files), cursor_copy, root_manifest. `native/` is the
compiled helper and its Python twin. Nothing here opens a file, reads a clock or depends on a second slab.
Format 1 is in the room `queuefka`.
"""
