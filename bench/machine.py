"""Describes the machine on which figures are measured."""

from __future__ import annotations

import datetime as dt
import os
import platform
import sqlite3
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import aolog

__all__ = ["describe", "file_system"]

_PACKAGES = ("xxhash", "numpy", "pyarrow", "msgpack", "lmdb", "rocksdict", "confluent-kafka")


def describe(directory: str) -> dict[str, object]:
    """The machine, for the head of the table and for the JSON."""
    return {
        "backend": aolog.backend,
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "load": round(os.getloadavg()[0], 2),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "directory": directory,
        "file_system": file_system(directory),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "versions": {**_versions(), "sqlite": sqlite3.sqlite_version},
    }


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def file_system(directory: str) -> str:
    """The type and the mount point of the file system, as the kernel lists them."""
    try:
        lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown"
    real = Path(directory).resolve()
    mounts = [line.split()[1:3] for line in lines]
    fitting = [(point, kind) for point, kind in mounts if real.is_relative_to(point)]
    if not fitting:
        return "unknown"
    point, kind = max(fitting, key=lambda mount: len(mount[0]))
    return f"{kind} on {point}"


def _versions() -> dict[str, str]:
    found = {"aolog": aolog.__version__}
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
