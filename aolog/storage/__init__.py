"""The only code that touches files, and the clock.

Read in this order: system (the calls of the kernel that are used), files (files and directories, with
our errors), inside (a name in a directory, opened through no link), mounts (what the file system can
promise), watch (waiting for growth), clock. Tests replace `system` with a simulation that loses what
was not synced. Nothing here knows what the bytes mean.
"""
