"""What runs once a record or once a frame: compiled, and the Python twins that are the reference.

`inlet` is what a writer calls, `speed` what a reader calls. Each chooses a half; both halves do
the same, and tests compare them.
"""
