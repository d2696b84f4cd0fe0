"""Detects another installed distribution with a package `aolog`, which conflicts with ours.

PyPI's `aolog` is another project. In the same environment, the files of one replace the files of the
other, and removing either breaks the other.
"""

from __future__ import annotations

from importlib import metadata

from aolog.errors import conflict, warn


def warn_of_conflict() -> None:
    """Warns if a distribution named `aolog` is installed, and says how to remove it."""
    found = metadata.distributions(name="aolog")
    # An installation has a RECORD; the metadata of a source tree has none.
    other = next((each for each in found if each.read_text("RECORD") is not None), None)
    if other is None:
        return
    warn("%s", conflict(f"the distribution 'aolog' {other.version} is installed here"))
