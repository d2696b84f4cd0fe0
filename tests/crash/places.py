"""File systems to die on: what is there, and images that this machine may be able to mount.

Where it cannot, there is one reason, which the skip names.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from bench.machine import file_system

__all__ = ["PLACES", "image_of", "mounted", "place"]

_MIB = 1 << 20
# The least that their makers take, and some room.
_IMAGES = {
    "ext4": (64, ["mkfs.ext4", "-q"]),
    "xfs": (320, ["mkfs.xfs", "-q"]),
    "btrfs": (160, ["mkfs.btrfs", "-q"]),
}
PLACES = ("tmp", "tmpfs", "ext4", "xfs", "btrfs")


def _run(*command: str) -> None:
    """A command of the system's; a skip with its own words where it cannot be done."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        words = done.stderr.decode().strip().splitlines() or ["no reason given"]
        pytest.skip(f"{command[0]}: {words[-1]}")


def image_of(kind: str, where: Path) -> Path:
    """A file with an empty file system of a kind in it."""
    mib, make = _IMAGES[kind]
    image = where / f"{kind}.img"
    with image.open("wb") as file:
        file.truncate(mib * _MIB)
    _run(*make, str(image))
    return image


@contextmanager
def mounted(device: Path, at: Path, *options: str) -> Iterator[Path]:
    """What is on a device, or in an image, mounted."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount")
    at.mkdir()
    flags = ["loop", *options] if device.is_file() else list(options)
    _run("mount", "-o", ",".join(flags) or "defaults", str(device), str(at))
    try:
        yield at
    finally:
        subprocess.run(["umount", str(at)], check=True)
        at.rmdir()


@contextmanager
def place(kind: str, scratch: Path) -> Iterator[Path]:
    """An empty directory on a file system of a kind. scratch: for what it needs."""
    with ExitStack() as stack:
        if kind == "tmp":
            yield scratch
            return
        if kind == "tmpfs":
            if not file_system("/dev/shm").startswith("tmpfs "):
                pytest.skip("/dev/shm is no tmpfs")
            at = Path(tempfile.mkdtemp(prefix="aolog-crash-", dir="/dev/shm"))
            stack.callback(shutil.rmtree, at)
        else:
            image = image_of(kind, scratch)
            at = stack.enter_context(mounted(image, scratch / "mounted"))
        yield at
