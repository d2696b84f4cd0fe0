"""Sends functions and objects of this package to Spark's workers, so that a worker that lacks the
package reports it in one line.

Spark pickles the classes and functions of a package by name. A worker whose Python lacks the package
fails at unpickling, with a page of traceback that ends in ModuleNotFoundError. So this module pickles
them into bytes, and sends these with a function that unpickles them. That function is pickled by
value, as it is defined inside a function, and needs only Python.
"""

from __future__ import annotations

import pickle
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from aolog.errors import install_command

if TYPE_CHECKING:
    from collections.abc import Callable

_TO_DO = (
    f"install it there ({install_command('spark')}), ship it (--py-files), or set PYSPARK_PYTHON to a "
    "Python that has it before the session is made"
)


def _opener() -> Callable[[bytes], Any]:
    to_do = _TO_DO

    def opened(data: bytes) -> Any:
        import os
        import pickle
        import socket
        import sys

        try:
            function, arguments = pickle.loads(data)  # noqa: S301 -- from our own driver
        except ModuleNotFoundError as error:
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"  # for this process, which ends with the error
            version = ".".join(map(str, sys.version_info[:3]))
            where = f"the worker on {socket.gethostname()}, {sys.executable} (Python {version})"
            kind = type("UsageError", (Exception,), {"__module__": "aolog.errors"})
            raise kind(f"{where}, has no module {error.name!r}; {to_do}") from None
        return function(*arguments)

    return opened


@cache
def _opener_by_value() -> bytes:
    from pyspark import cloudpickle

    made: bytes = cloudpickle.dumps(_opener())  # type: ignore[no-untyped-call]
    return made


class _Opener:
    """The function, in a form that any pickler pickles by value."""

    def __call__(self, data: bytes) -> Any:
        return _opener()(data)

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        return pickle.loads, (_opener_by_value(),)


_OPENER = _Opener()


def parcel(function: Callable[..., Any], *arguments: object) -> tuple[_Opener, tuple[bytes]]:
    """For `__reduce__`: unpickling calls `function(*arguments)`."""
    return _OPENER, (pickle.dumps((function, arguments)),)


class Shipped:
    """A function of this package, with its first arguments, for workers to call. __name__: what Spark's plan
    shows."""

    def __init__(self, function: Callable[..., Any], *bound: object) -> None:
        self.__name__ = function.__name__
        self._function = function
        self._bound = bound

    def __call__(self, *arguments: object) -> Any:
        """Calls the function with its first arguments and these."""
        return self._function(*self._bound, *arguments)

    def __reduce__(self) -> tuple[_Opener, tuple[bytes]]:
        return parcel(partial, self._function, *self._bound)
