"""How fast the log is, beside what a user would pick instead and what the machine can do.

    python -m bench --help

    sizes, payloads     what is appended and read: the same bytes for all, from a seed
    peers/              a file each: aolog, msgpack, pyarrow IPC, lmdb, sqlite, persist-queue
    limits              the same bytes written, read and hashed with nothing in between
    cases/              append, append_many, read, to Arrow: who runs, what is timed
    measure             rounds, medians, ratios; every contender's work is proved before it counts
    report, machine     the table, the JSON, and on what it was measured
    target              the one figure that has to hold

Times are for comparing within one run. Between runs only ratios mean something, and on a shared
machine those only roughly: look at the spread. Peers are imported in their own file and nowhere
else; one that is not installed is named and left out.
"""
