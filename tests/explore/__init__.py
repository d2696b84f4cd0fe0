"""Crash exploration: short histories, stopped at every operation, in every state that may survive.

    history.py   histories: steps, options, cases written by hand and drawn from a seed
    run.py       runs a case on a simulated system, and notes what was promised at each point
    observe.py   reads a surviving state, recovers it, appends, reads again
    check.py     what must hold of a surviving state: the promise, clause by clause
    explore.py   checks every surviving state at every point of a case; counts, failures

The exploration must find some of the mutants of tests/mutants. `python -m tests.explore --help` shows
how to run one case, all of them, or one state.
"""
