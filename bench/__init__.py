"""How fast the log is, beside what a user would pick instead and what the machine can do.

    python -m bench --help

    sizes, payloads     what is appended and read: the same bytes for all, from a seed
    peers/              a file each: aolog, msgpack, pyarrow IPC, lmdb, sqlite, RocksDB
    limits              the same bytes written, read and hashed with nothing in between
    cases/              a file each: who runs, what is timed; or what is probed
    measure             rounds, medians, ratios; every contender's work is proved before it counts
    panel, child        figures that are no times, taken in fresh processes
    bridges             clusters to send to, and a bridge in a process of its own, watched
    sparks, rows        a Spark of two cores, what it reads in every form, and a source of rows
    target              what has to hold, declared by the group that measures it
    report, machine     the tables on the terminal, and on what it was measured
    results             all of it as JSON; what is published of it, in results/, a file each case
    plot, table         curves, RESULTS.md and the README's table, made of results/ alone

Times are for comparing within one run. Between runs only ratios mean something, and on a shared
machine those only roughly: look at the spread, or at instructions. Peers are imported in their own
file and nowhere else; one that is not installed is named and left out.

A new case is a file in cases/ and its name in cases/__init__.py.
"""
