"""Faults of a simulated system: planned, or drawn at random from a seed.

    Fault("fdatasync", "*.slab", nth=2, errno=errno.EIO, lies=True)

The second fdatasync of a slab fails, and what it did not write is never written, although later calls
succeed. `RandomFaults` draws the same faults for the same seed.
"""

from __future__ import annotations

import errno as errors
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from random import Random
from typing import NamedTuple, Protocol

SYNCS = frozenset({"fdatasync", "fsync"})


class Call(NamedTuple):
    """A system call, before it is carried out. number: of the process's calls, from 1. size: bytes to
    write or read."""

    number: int
    name: str
    path: str
    size: int = 0


class Effect(NamedTuple):
    """The result of a call with a fault. errno: the error, None for success; EINTR: the call is repeated,
    as Python does. short: the number of bytes carried out, at least 1 with success. lies: the sync
    fails, and its bytes are never written."""

    errno: int | None = None
    short: int | None = None
    lies: bool = False


class Faults(Protocol):
    """Chooses the effect of each call; None: no fault."""

    def __call__(self, call: Call, /) -> Effect | None:
        """Called before each call."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One planned fault. call: a name in `System`. path: a glob for the whole path. nth: the first
    matching call that it affects, from 1. times: how many in a row, None for all. errno, short, lies:
    see Effect."""

    call: str
    path: str = "*"
    nth: int = 1
    times: int | None = 1
    errno: int | None = None
    short: int | None = None
    lies: bool = False

    def __post_init__(self) -> None:
        if self.errno is None and self.short is None:
            raise ValueError("a fault has an errno, or is short")
        if self.lies and (self.call not in SYNCS or self.errno is None):
            raise ValueError("only a sync that fails can lie")


class FaultPlan:
    """Planned faults; the first one that matches takes effect."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self._faults = list(faults)
        self._met = [0] * len(self._faults)

    def __call__(self, call: Call) -> Effect | None:
        """Called before each call."""
        found = None
        for i, fault in enumerate(self._faults):
            if fault.call == call.name and fnmatchcase(call.path, fault.path):
                self._met[i] += 1
                since = self._met[i] - fault.nth
                if found is None and since >= 0 and (fault.times is None or since < fault.times):
                    found = Effect(fault.errno, fault.short, fault.lies)
        return found


class RandomFaults:
    """Affects each call with probability `rate`: one of the call's errors, or a short write or read. Half
    of the failing syncs lie."""

    ERRORS: Mapping[str, tuple[int, ...]] = {
        "open": (errors.EIO, errors.EMFILE),
        "pread": (errors.EIO, errors.EINTR),
        "pwritev": (errors.EIO, errors.ENOSPC, errors.EDQUOT, errors.EINTR),
        "fdatasync": (errors.EIO, errors.EINTR),
        "fsync": (errors.EIO, errors.ENOSPC),
        "ftruncate": (errors.EIO, errors.EINTR),
        "replace": (errors.EIO, errors.ENOSPC),
        "unlink": (errors.EIO,),
        "mkdir": (errors.EIO, errors.ENOSPC),
    }

    def __init__(self, seed: int, rate: float = 0.02) -> None:
        self._rng = Random(seed)  # noqa: S311 -- faults, not secrets
        self._rate = rate

    def __call__(self, call: Call) -> Effect | None:
        """Called before each call."""
        choices = self.ERRORS.get(call.name)
        rng = self._rng
        if not choices or rng.random() >= self._rate:
            return None
        if call.size > 1 and rng.random() < 0.5:
            return Effect(short=rng.randrange(1, call.size))
        chosen = rng.choice(choices)
        return Effect(chosen, lies=call.name in SYNCS and rng.random() < 0.5)


def as_faults(faults: Faults | Iterable[Fault]) -> Callable[[Call], Effect | None]:
    """The rule for a list of planned faults, or the rule itself."""
    return faults if callable(faults) else FaultPlan(faults)
