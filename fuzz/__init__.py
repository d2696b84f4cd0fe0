"""Attacks on the log, from a seed: for engineers who do not trust it.

    python -m fuzz --help

    layout, oracle      what must come out of a log after damage, from bytes compared and the rules of
                        FORMAT.md, with none of the log's own code
    damage              damage as JSON that a person can read
    ways, check         every reader, verify, ranges and a writer against the oracle
    shapes, disk        small logs in every state, and the only place for their files
    machine             where the log of a history is, and what a crash leaves of it
    targets/            frame, log, recovery, cursor: a target draws a case from a number, as JSON, and
                        runs it; the outcome is a word
    canary              mutants (tests/mutants) that the targets must find
    campaign, minimise  runs cases in parallel for a time; minimises, saves and names failures
    engine              coverage-guided fuzzing (atheris), where it can be installed
    corpus/             cases that the tests replay: small ones, and each failure found

Target, seed and number alone determine a case. The tests of the damage matrix use the same oracle
(tests/aolog/damage/test_damage_matrix.py).
"""
