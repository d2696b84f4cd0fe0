"""The demo: the whole path on real input, on an embedded broker.

Read in this order: command, demo, sample, compare, result.
"""
