"""The only code that touches files, and the clock.

Read in this order: system (the kernel's calls that are used), file (an open file, and our errors in
place of OSError), directory (an open directory, and paths inside a log), storage (opening, creating,
listing, renaming), listing (how long one counts), mounts (which guarantees a file system lacks), watch (waiting
for growth), clock, lifetime (what is open, at a fork and at exit).
Tests replace `system` with a simulation that loses unsynced data. Nothing here interprets bytes.
"""
