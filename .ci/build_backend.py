# ruff: noqa: INP001 -- not a package: pip reads it as a build backend
"""setuptools' build backend, which first refuses two kinds of Python, at once and by name. This file is read by
every Python 3.

An older one: pip compares requires-python only after it has chosen versions of all that an extra needs, and it
tried one after the other for half an hour. A free-threaded one: the compiled halves use the limited API, which it
lacks, and they rely on the interpreter's lock, as their Python twins do.
"""

import sys
import sysconfig

if sys.version_info < (3, 11):  # noqa: UP036 -- it is what this file is for
    found = ".".join(map(str, sys.version_info[:2]))
    sys.exit(
        f"aolog-bridge needs Python 3.11 or later, and this is Python {found}: use another interpreter"
    )
if sysconfig.get_config_var("Py_GIL_DISABLED"):
    sys.exit(
        "aolog-bridge needs the interpreter's lock, and this is a free-threaded CPython: use python"
        " {}.{} instead of {}.{}t".format(*2 * sys.version_info[:2])
    )

from setuptools.build_meta import *  # noqa: F403 -- a backend is its functions
