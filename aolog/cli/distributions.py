"""Another installed distribution that brings a package `aolog`, in conflict with ours.

PyPI's `aolog` is another project. Installed in the same environment, its files replace ours, or
ours replace its files, and removing either breaks the other.
"""

from __future__ import annotations

from importlib import metadata

from aolog.errors import conflict, warn

__all__ = ["warn_of_conflict"]


def warn_of_conflict() -> None:
    """Warns if a distribution named `aolog` is installed, and says how to remove it."""
    found = metadata.distributions(name="aolog")
    # Without a RECORD it is the metadata of a source tree, not of an installation.
    other = next((each for each in found if each.read_text("RECORD") is not None), None)
    if other is None:
        return
    warn("%s", conflict(f"the distribution 'aolog' {other.version} is installed here"))
