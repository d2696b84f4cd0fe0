"""How fast the log is, beside what a user would pick instead and what the machine can do.

    python -m bench --help

    sizes, payloads     what is appended and read: the same bytes for all, from a seed
    peers/              a file each: aolog, msgpack, pyarrow IPC, lmdb, sqlite, RocksDB; small programs in Go and C
    limits              the same bytes written, read and hashed with nothing in between
    cases/              a file each: who runs, what is timed; or what is probed
    measure             rounds, medians, ratios; a contender's work is proved before it counts
    panel, child        figures other than times, taken in fresh processes
    bridges             clusters, and a bridge in a process of its own that reports to the bench
    sparks, rows        a Spark session of two cores, the same values in every format, two other sources
    target              compares times with the targets that groups declare
    report, machine     the tables on the terminal, and the machine
    quick               the rows of the README's table, as bars
    results             all figures as JSON; the published ones, in results/, a file for each case
    plot, table         curves, RESULTS.md and the README's table, made of results/ alone
    sentences           the same for figures within sentences of the pages

Compare times within one run only. Between runs only ratios mean something, and on a shared machine only
roughly: look at the spread, or at instructions. Each peer is imported in its own file and nowhere else; one
that is not installed is named and left out.

A new case is a file in cases/ and its name in cases/__init__.py.
"""
