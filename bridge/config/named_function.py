"""A function of the user's by its name, `module:function`: a transform, or `oauth_cb`."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

FUNCTION_NAME = r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$"


def load_function(name: str) -> Callable[[Any], Any]:
    """Imports it. Raises ValueError, with the reason."""
    module, _, attribute = name.partition(":")
    try:
        found: Any = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # noqa: BLE001 -- a module may raise anything
        raise ValueError(f"cannot be loaded: {type(error).__name__}: {error}") from None
    if not callable(found):
        raise ValueError(f"{name} is not a function")  # noqa: TRY004 -- as the model reports it
    function: Callable[[Any], Any] = found
    return function
