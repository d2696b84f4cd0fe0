"""Azurite, Microsoft's emulator of Azure's blobs, on loopback."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import http.client
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path

from tests.aolog.maintenance.archive.stores import BUCKET

ACCOUNT = "devstoreaccount1"
# The emulator's own, which its manual has.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_VERSION = "2021-12-02"  # of the interface
_SOON_S = 60.0


def program() -> str | None:
    """azurite-blob, which .ci/run installs; None without."""
    places = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return shutil.which("azurite-blob", path=places)


def _make_container(host: str, port: int) -> None:
    date, path = formatdate(usegmt=True), f"/{ACCOUNT}/{BUCKET}"
    headers = f"x-ms-date:{date}\nx-ms-version:{_VERSION}\n"
    signed = "PUT" + 12 * "\n" + headers + f"/{ACCOUNT}{path}\nrestype:container"
    digest = hmac.digest(base64.b64decode(KEY), signed.encode(), hashlib.sha256)
    with contextlib.closing(http.client.HTTPConnection(host, port, timeout=_SOON_S)) as connection:
        connection.request(
            "PUT", f"{path}?restype=container",
            headers={
                "x-ms-date": date, "x-ms-version": _VERSION, "Content-Length": "0",
                "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}",
            },
        )  # fmt: skip  # one request
        assert connection.getresponse().status == 201


@contextlib.contextmanager
def azurite(directory: Path) -> Iterator[dict[str, str]]:
    """Yields the variables with which clients find it. It has an empty container."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        host, port = free.getsockname()
    process = subprocess.Popen(
        [str(program()), "--blobHost", host, "--blobPort", str(port), "--location", str(directory),
         "--silent", "--skipApiVersionCheck", "--disableTelemetry"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip  # one command
    try:
        end = time.monotonic() + _SOON_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection((host, port)):
                break
            assert process.poll() is None, "it ended"
            assert time.monotonic() < end, "it does not start"
            time.sleep(0.05)
        _make_container(host, port)
        yield {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": KEY,
            "AZURE_STORAGE_ENDPOINT": f"http://{host}:{port}/{ACCOUNT}",
        }  # fmt: skip  # a table
    finally:
        process.kill()
        process.wait()
