# ruff: noqa: INP001 -- not a package: pip reads it as a build backend
"""setuptools' build backend, which first refuses an older Python, at once and by name. pip compares
requires-python only after it has chosen versions of all that an extra needs: it tried one after the other for
half an hour. This file is read by every Python 3."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 -- it is what this file is for
    found = ".".join(map(str, sys.version_info[:2]))
    sys.exit(
        f"aolog-bridge needs Python 3.11 or later, and this is Python {found}: use another interpreter"
    )

from setuptools.build_meta import *  # noqa: F403 -- a backend is its functions
