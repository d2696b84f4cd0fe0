"""When a writer's own threads have something to do. Pure: a table.

    task    is due after        since
    FLUSH   flush_seconds       records may wait in memory
    SYNC    sync_seconds        flushed records are not durable (with sync="interval")
    SEAL    slab_seconds        the slab has a record
    MARK    sync_seconds        nothing came, all is durable, and the slab lacks a mark
    PRUNE   10 s                slabs were last checked for retention's max_age_s
    WARN    at once             retention removed unread records, and the minute of quiet is over
    LOOK    flush_seconds       something was flushed

After a failure FLUSH is due each second, and what else writes waits until it has succeeded. LOOK does
nothing, and keeps the thread awake: without it the first append after each flush would wake the
thread, which costs as much as the write.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from aolog.write.options import WriterOptions

NEVER_S = float("inf")
RETRY_S = 1.0  # between attempts after a failure
PRUNE_S = 10.0  # between checks of max_age_s while no slab begins


class Task(Enum):
    """Rows of the table, in the order in which they are done."""

    FLUSH = "flush"
    SEAL = "seal"
    PRUNE = "prune"
    WARN = "warn"
    MARK = "mark"
    SYNC = "sync"
    LOOK = "look"


class State(NamedTuple):
    """Since when something is so, by `time.monotonic`; NEVER_S: it is not. Tasks are due some time after that."""

    waits_s: float = NEVER_S  # records may wait in memory
    unsynced_s: float = NEVER_S  # flushed records are not durable
    begun_s: float = NEVER_S  # the slab has a record
    slab: int = -1  # base of that slab
    quiet_s: float = NEVER_S  # nothing came, all is durable, and the slab lacks a mark
    quiet_end: int = -1  # the log's end then
    pruned_s: float = NEVER_S  # slabs were checked for max_age_s
    warn_s: float = NEVER_S  # when the next warning of PrunedUnread is due
    flushed_s: float = NEVER_S  # FLUSH was done
    failed_s: float = NEVER_S  # a task failed, and FLUSH has not succeeded


class Seen(NamedTuple):
    """What the thread sees of the writer, under its lock."""

    end: int  # of all frames
    has_slab: bool  # whether a slab grows
    needs_mark: bool  # no frame is open, the slab lacks a mark, and one would become durable
    is_durable: bool  # all frames are
    is_synced: bool  # all frames in the file are durable
    warn_s: float  # when the next warning of PrunedUnread is due


def due(state: State, options: WriterOptions) -> dict[Task, float]:
    """When each task is due, by `time.monotonic`; NEVER_S: not until the state changes."""
    flush_s = NEVER_S if options.flush_seconds is None else options.flush_seconds
    slab_s = NEVER_S if options.slab_seconds is None else options.slab_seconds
    times = {
        Task.FLUSH: state.waits_s + flush_s,
        Task.SEAL: state.begun_s + slab_s,
        Task.PRUNE: state.pruned_s + PRUNE_S,
        Task.WARN: state.warn_s,
        Task.MARK: state.quiet_s + options.sync_seconds,
        Task.SYNC: state.unsynced_s + options.sync_seconds,
        Task.LOOK: state.flushed_s + flush_s,
    }
    if state.failed_s != NEVER_S:
        times |= dict.fromkeys((Task.SEAL, Task.MARK, Task.SYNC), NEVER_S)
        times[Task.FLUSH] = state.failed_s + RETRY_S
    return times


def began(state: State, now_s: float, slab: int, warn_s: float) -> State:
    """A frame begins in the slab with this base."""
    waits_s = min(state.waits_s, now_s)
    begun_s = state.begun_s if slab == state.slab else now_s
    return state._replace(waits_s=waits_s, begun_s=begun_s, slab=slab, warn_s=warn_s)


def looked(state: State, now_s: float, seen: Seen) -> State:
    """The thread looks at the writer."""
    quiet_s = state.quiet_s
    if not seen.needs_mark:
        quiet_s = NEVER_S
    elif quiet_s == NEVER_S or not seen.is_durable or seen.end != state.quiet_end:
        quiet_s = now_s
    return state._replace(
        begun_s=state.begun_s if seen.has_slab else NEVER_S,
        unsynced_s=NEVER_S if seen.is_synced else state.unsynced_s,
        quiet_s=quiet_s,
        quiet_end=seen.end,
        warn_s=seen.warn_s,
    )


def done(state: State, task: Task, now_s: float) -> State:
    """The task counts as done."""
    changes: dict[Task, dict[str, Any]] = {
        Task.FLUSH: {"waits_s": NEVER_S, "flushed_s": now_s, "failed_s": NEVER_S},
        Task.SEAL: {},  # due until the slab is sealed
        Task.PRUNE: {"pruned_s": now_s},
        Task.WARN: {"warn_s": NEVER_S},
        Task.MARK: {"quiet_s": NEVER_S, "unsynced_s": -NEVER_S},  # the mark is synced at once
        Task.SYNC: {"unsynced_s": NEVER_S},
        Task.LOOK: {"flushed_s": NEVER_S},
    }
    return state._replace(**changes[task])
