"""Crash exploration: short histories, stopped at every operation, in every state that may survive.

    history.py   what is done: steps, options, cases written by hand and drawn from a seed
    run.py       carries a case out on a simulated system, and notes what was promised when
    observe.py   what comes of a state that is left: read, recovered, appended to, read again
    memory.py    what reading gives, remembered by what was read: states share most of it
    check.py     what must hold of a state that is left: the promise, clause by clause
    explore.py   every point of a case, every surviving state, checked; counts, failures
    mutants.py   defects of the library that the exploration must find

`python -m tests.explore --help` runs one case, all of them, or one state.
"""
