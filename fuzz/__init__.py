"""Attacks on the log, from a seed. Whoever does not trust it runs this until they do.

    python -m fuzz --help

    layout, oracle      what was written, and what must come out of it after damage: from bytes
                        compared and FORMAT.md's rules, with none of the log's own code
    damage              damages as values: JSON that a person reads
    ways, check         every reader, verify, ranges and a writer against the oracle
    shapes, disk        small logs in every state, and the one place at which files lie
    targets/            frame, log, recovery, cursor, canary: a case is drawn from a number,
                        is JSON, and is run; what it did is a word
    campaign, minimise  cases side by side for a time; a failure made small, saved and named
    engine              coverage-guided (atheris), where it installs
    corpus/             cases that are replayed by the tests: small ones, and each failure found

A case is decided by target, seed and number alone. The tests of the damage matrix use the same
oracle (tests/aolog/damage/test_damage_matrix.py).
"""
