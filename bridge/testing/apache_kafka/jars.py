"""Java, and the jars of a Kafka server: fetched through Maven once, and kept for later runs.

They are kept in `$XDG_CACHE_HOME/aolog-bridge/kafka-<hash of the pom>/` (`~/.cache` without the variable):
pom.xml is of the newest Kafka that the bridge is for, pom-3.9.xml of the last 3.x.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from bridge.errors import DestinationError

POM: Final = Path(__file__).with_name("pom.xml")
POM_3_9: Final = Path(__file__).with_name("pom-3.9.xml")
# Kafka 4 servers run on Java 17 and later.
JAVA_VERSION_MIN: Final = 17
# 47 jars, 44 MB, through whatever the network is.
FETCH_SECONDS_MAX: Final = 600


class KafkaUnavailable(DestinationError):
    """This machine cannot run Kafka. Install what the message names (Java 17 or later, Maven), or name
    Kafka's jars with `aolog-bridge cluster --jars`."""

    code = "kafka_unavailable"


def java() -> str:
    """The path of a Java that can run Kafka. Raises KafkaUnavailable."""
    path, home = shutil.which("java"), os.environ.get("JAVA_HOME")  # Spark's tests may set that
    if path is None and home:
        path = shutil.which("java", path=f"{home}/bin")
    if path is None:
        raise KafkaUnavailable("no Kafka server: java is not installed")
    shown = subprocess.run([path, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "(\d+)', shown.stderr)
    if version is None or int(version[1]) < JAVA_VERSION_MIN:
        said = shown.stderr.partition("\n")[0]
        raise KafkaUnavailable(f"no Kafka server: {path} is not Java {JAVA_VERSION_MIN}+: {said}")
    return path


def keytool() -> str:
    """The path of Java's tool for keys. Raises KafkaUnavailable."""
    beside = Path(os.path.realpath(java())).with_name("keytool")
    found = str(beside) if beside.exists() else shutil.which("keytool")
    if found is None:  # some Javas have none
        raise KafkaUnavailable("no TLS: this Java has no keytool")
    return found


def cache_directory() -> Path:
    """What is kept for later runs, and what all processes of this user share. It may not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "aolog-bridge"


def jars(pom: Path = POM) -> Path:
    """The directory of a server's jars, which the first call fetches. It is complete or absent: jars
    are gathered beside it, and the directory is renamed when it is complete. Processes that ask at
    the same time wait for the one that fetches. Raises KafkaUnavailable."""
    cache = cache_directory()
    folder = cache / f"kafka-{hashlib.sha256(pom.read_bytes()).hexdigest()[:16]}"
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with folder.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # released when the file is closed
            if not folder.exists():
                _fetch(folder, pom)
    return folder


def _fetch(folder: Path, pom: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaUnavailable("no Kafka server: its jars are not cached, and mvn is not installed")
    log = folder.with_suffix(".log")
    with tempfile.TemporaryDirectory(dir=folder.parent) as part, log.open("wb") as out:
        gathered = Path(part) / "jars"
        goal = (
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            f"-DoutputDirectory={gathered}",
        )
        try:
            status: object = subprocess.run(
                [maven, "-q", "-B", "-f", str(pom), *goal],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                timeout=FETCH_SECONDS_MAX,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            status = f"after {FETCH_SECONDS_MAX} s"
        if status:
            raise KafkaUnavailable(f"no Kafka server: mvn fetched no jars ({status}), see {log}")
        gathered.rename(folder)
