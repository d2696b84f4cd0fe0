"""Mutants: defects that are put into the code on purpose. Tests, exploration and fuzzers must find them.

    python -m tests.mutants                    all, with the tests that must fail
    python -m tests.mutants NAME ...           some; shows the tests' output if one survives
    python -m tests.mutants --page             writes aolog/docs/explanation/proof.md again
    python -m tests.explore --mutant NAME      explores the crashes of its case
    python -m fuzz canary                      fuzzes those that a fuzzer must find

mutant.py says what a mutant is and applies it. defects.py lists them, changes.py has what they do. c_mutants.py
has those of the C code. proofs.py lists the tests of each clause, run.py runs the tests, page.py makes the page.
"""
