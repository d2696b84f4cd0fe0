"""Which Kafka cluster a cursor is of: its own id, which its answers name.

A cursor says what one cluster has. With another one behind it (a changed default in the
configuration, other servers, a name that leads elsewhere) all that the cursor has passed would be
missing there, and nobody would be told. So the first id that a cursor meets is kept beside it,
and another one is refused. Kafka's clients have begun to check the same (KIP-1242).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from shlex import quote

from bridge.errors import OtherCluster

__all__ = ["Identity"]


@dataclass(slots=True)
class Identity:
    """known: the id, "" where none was met, or the cluster names none. name: what a
    configuration called it then, or the first one if it was not met yet, "" without one; called:
    what one calls it now. path: of the notes that keep it, for words. Any thread."""

    path: str = ""
    known: str = ""
    name: str = ""
    called: str = ""

    def call(self, name: str) -> None:
        """What the configuration calls the cluster that is meant."""
        self.called = name
        self.name = self.name or ("" if self.known else name)

    def forget(self) -> None:
        """It may be any."""
        self.known = self.name = ""

    def meet(self, found: str | None, servers: str) -> None:
        """The cluster behind these servers says that it is this one. Raises OtherCluster."""
        if self.known and found:
            is_other, here, its = found != self.known, found, self.known
        else:  # nothing but names tells
            is_other = bool(self.name and self.called) and self.name != self.called
            here, its = repr(self.called), repr(self.name)
        if is_other:
            cursor, log = PurePath(self.path).stem, str(PurePath(self.path).parent.parent)
            raise OtherCluster(
                f"{servers} is the Kafka cluster {here}, and the cursor {cursor!r} is of {its}: "
                "what it has passed would never be sent to this one",
                hint="mend the servers or the configuration (another default cluster?), or give "
                f"each cluster its own cursor; `aolog-bridge seek {quote(log)} --cursor {cursor} "
                "--forget-cluster` lets it go on here",
                path=self.path,
            )
        self.known, self.name = found or self.known, self.called or self.name
