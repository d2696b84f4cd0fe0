"""For tests of programs that use the bridge: a provider's contract, providers, a broker.

`ProviderTests` is the contract of `bridge.Provider` as a class of tests;
aolog/docs/how-to/buffer.md shows how to use it. `MemoryProvider` keeps messages in a list;
`FaultyProvider` makes another provider fail; neither needs pytest. `embedded_broker` is a pytest
fixture: import it in a conftest.py.

`apache_kafka` is a real Kafka on loopback.

Read in this order: providers, contract, apache_kafka (with the command `cluster`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.testing.providers import FaultyProvider, MemoryProvider

if TYPE_CHECKING:
    from bridge.testing.contract import ProviderTests, embedded_broker

__all__ = ["FaultyProvider", "MemoryProvider", "ProviderTests", "embedded_broker"]

_NEED_PYTEST = {"ProviderTests", "embedded_broker"}


if not TYPE_CHECKING:  # otherwise mypy would accept any name

    def __getattr__(name: str) -> Any:
        """Imports pytest only for the names that need it."""
        if name not in _NEED_PYTEST:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        import pytest

        pytest.register_assert_rewrite("bridge.testing.contract")  # a failed test shows its values
        return getattr(import_module("bridge.testing.contract"), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *globals()})
