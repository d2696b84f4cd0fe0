"""An archive of a log in an object store: its protocol, what sends it, and the way back.

Read in this order: aolog/docs/reference/archive.md (the rules), protocol (one round of an archiver, a pure
state machine), probe (what a store must do, as a pure state machine), replacing (a commit of anybody else). The
manifest's bytes are format/archive.py; the client is storage/objects.
"""
