"""What another program does between a program's look at the manifest and its commit."""

from __future__ import annotations

from collections.abc import Callable

from aolog.format.archive import MANIFEST
from aolog.storage.objects.requests import Put
from aolog.testing.objects import SimulatedStore


def before_the_commit(store: SimulatedStore, happens: Callable[[], object]) -> None:
    """`happens` is called at the next attempt at a commit, before it."""
    send = store.send

    def first(request):
        if isinstance(request, Put) and request.name == MANIFEST:
            store.send = send
            happens()
        return send(request)

    store.send = first
