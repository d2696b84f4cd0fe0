"""Which Kafka cluster a cursor belongs to: the id that the cluster's answers give.

A cursor records what one cluster has. Other servers, a changed default in the configuration, or a name
that leads elsewhere may connect it to another cluster. Everything before the cursor would be missing
there, silently. So the first id that a cursor meets is kept beside it, and another one is refused.
Kafka's clients have begun to check the same (KIP-1242).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from shlex import quote

from bridge.errors import OtherCluster


@dataclass(slots=True)
class Identity:
    """Of a cursor's cluster. Any thread."""

    path: str = ""  # of the notes that keep it, for messages
    known: str = ""  # the id; "" if none was met or the cluster gives none
    name: str = ""  # the configuration's when it was met (or the first, before that); "" if none
    called: str = ""  # the name that the configuration uses now

    def call(self, name: str) -> None:
        """Takes the name that the configuration uses now."""
        self.called = name
        self.name = self.name or ("" if self.known else name)

    def forget(self) -> None:
        """Any cluster may be met next."""
        self.known = self.name = ""

    def meet(self, found: str | None, servers: str) -> None:
        """The cluster at these servers has this id. Raises OtherCluster."""
        if self.known and found and found != self.known:
            cursor, log = PurePath(self.path).stem, str(PurePath(self.path).parent.parent)
            raise OtherCluster(
                f"{servers} is the Kafka cluster {found}, and the cursor {cursor!r} is of {self.known}: "
                "continuing here would skip records",
                hint="correct the servers or the configuration (another default cluster?), or give "
                f"each cluster its own cursor; `aolog-bridge seek {quote(log)} --cursor {cursor} "
                "--forget-cluster` makes it continue here",
                path=self.path,
            )
        self.known, self.name = found or self.known, self.called or self.name
