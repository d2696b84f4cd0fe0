"""What may go wrong in a simulated system, as a plan or drawn at random from a seed.

    Fault("fdatasync", "*.slab", nth=2, errno=errno.EIO, lies=True)

is the second fdatasync of a slab: it fails, and what it did not write is never written, though
later calls say that all is well. `RandomFaults` draws: the same seed, the same faults.
"""

from __future__ import annotations

import errno as errors
from dataclasses import dataclass
from fnmatch import fnmatchcase
from random import Random
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["SYNCS", "Call", "Effect", "Fault", "FaultPlan", "Faults", "RandomFaults", "as_faults"]

SYNCS = frozenset({"fdatasync", "fsync"})


class Call(NamedTuple):
    """A system call that is about to be carried out. number: of the process's calls, from 1.
    size: bytes to be written or read."""

    number: int
    name: str
    path: str
    size: int = 0


class Effect(NamedTuple):
    """What happens in place of the call. errno: it fails so, None if it succeeds. EINTR: it is
    made again, as Python does. short: so many bytes are carried out, at least one where it
    succeeds. lies: of a sync that fails, what it should have written never will be."""

    errno: int | None = None
    short: int | None = None
    lies: bool = False


class Faults(Protocol):
    """Says what happens to each call; None: what should."""

    def __call__(self, call: Call, /) -> Effect | None:
        """Before each call."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One planned fault. call: a name of `System`'s. path: a glob over the whole path. nth: the
    first of the matching calls that it strikes, from 1; times: how many in a row, None for all.
    errno, short, lies: see Effect."""

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
    """Planned faults, of which the first that matches strikes."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self._faults = list(faults)
        self._met = [0] * len(self._faults)

    def __call__(self, call: Call) -> Effect | None:
        """Before each call."""
        found = None
        for i, fault in enumerate(self._faults):
            if fault.call == call.name and fnmatchcase(call.path, fault.path):
                self._met[i] += 1
                since = self._met[i] - fault.nth
                if found is None and since >= 0 and (fault.times is None or since < fault.times):
                    found = Effect(fault.errno, fault.short, fault.lies)
        return found


class RandomFaults:
    """Strikes each call with probability `rate`, with one of the call's errors, or with a short
    write or read. Syncs that fail lie half of the time."""

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

    def __init__(
        self, seed: int, rate: float = 0.02, errors_of: Mapping[str, tuple[int, ...]] | None = None
    ) -> None:
        self._rng = Random(seed)  # noqa: S311 -- faults, not secrets
        self._rate = rate
        self._errors_of = self.ERRORS if errors_of is None else errors_of

    def __call__(self, call: Call) -> Effect | None:
        """Before each call."""
        choices = self._errors_of.get(call.name)
        rng = self._rng
        if not choices or rng.random() >= self._rate:
            return None
        if call.size > 1 and rng.random() < 0.5:
            return Effect(short=rng.randrange(1, call.size))
        chosen = rng.choice(choices)
        return Effect(chosen, lies=call.name in SYNCS and rng.random() < 0.5)


def as_faults(faults: Faults | Iterable[Fault]) -> Callable[[Call], Effect | None]:
    """A plan is a rule as well."""
    return faults if callable(faults) else FaultPlan(faults)
