"""The simulator: the real log, the real bridge and the real Buffer, with faults at the press of a button.

    program (a process)  ──►  log  ──►  bridge (a process)  ──►  embedded broker  ──►  consumer that counts
    program (a process), with a Buffer in it  ─────────────►  embedded broker  ──►  consumer that counts

Read in this order: counts (what was promised, what arrived: lost, repeated), program (the process that
writes numbered records), child (a process), settings, simulation (owns the processes, the broker, the
faults), routes (the page's HTTP), command; then, for `aolog-bridge demo`, demo, sample, compare. Nothing is
modelled: a kill is SIGKILL, and what survives is read back from the broker.
"""
