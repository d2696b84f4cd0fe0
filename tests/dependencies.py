"""What users install with this project: the licence of each package, and its known vulnerabilities.

    python -m tests.dependencies        # needs uv, pip-licenses and pip-audit on the PATH

The packages are those of the base install and of the extras that users choose, resolved as of today. The
extra `java` is left out: it brings a Java under GPLv2 with the classpath exception, as pyproject.toml says.

The job `dependencies` of .ci/run. A licence that is not in the list fails it, and so does a vulnerability.
Where the index's vulnerability data cannot be reached it says so, and does not fail.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
EXTRAS = ("arrow", "compression", "bridge", "objects", "signing", "spark")
# As SPDX writes them, and as older metadata does. None asks anything of the programs that import it.
ALLOWED = {
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "MIT", "MIT-0", "PSF-2.0", "Zlib",
    "Apache Software License", "BSD License", "MIT License", "Python Software Foundation License",
}  # fmt: skip  # a list


class Audit(NamedTuple):
    """Of pip-audit. skipped: packages whose data could not be read."""

    audited: int
    skipped: list[str]
    vulnerable: list[str]


def is_allowed(licence: str) -> bool:
    """An expression of SPDX, without brackets or exceptions, or names joined by semicolons. Of
    alternatives one is enough."""
    return any(
        all(part.strip() in ALLOWED for part in re.split(r" AND |;", choice))
        for choice in licence.split(" OR ")
    )


def audit_of(report: Mapping[str, Any]) -> Audit:
    """The report of pip-audit in JSON."""
    skipped, vulnerable, audited = [], [], 0
    for each in report["dependencies"]:
        if "skip_reason" in each:
            skipped.append(each["name"])
            continue
        audited += 1
        found = ", ".join(one["id"] for one in each["vulns"])
        if found:
            vulnerable.append(f"{each['name']} {each['version']}: {found}")
    return Audit(audited, skipped, vulnerable)


def _output(*command: str, may_fail: bool = False) -> str:
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=not may_fail)
    return done.stdout


def _licences(names: Sequence[str]) -> dict[str, str]:
    table = _output(
        "pip-licenses", f"--python={sys.executable}", "--format=json", "--from=mixed",
        "--packages", *names,
    )  # fmt: skip  # a command line
    listed = json.loads(table)
    return {f"{each['Name']} {each['Version']}": each["License"] for each in listed}


def main() -> int:
    pinned = _output(
        "uv", "pip", "compile", "-q", "--no-header", "--no-annotate", f"--python={sys.executable}",
        *(f"--extra={extra}" for extra in EXTRAS), "pyproject.toml",
    )  # fmt: skip  # a command line
    names = re.findall(r"^([\w.-]+)(?:\[.*\])?==", pinned, re.MULTILINE)
    licences = _licences(names)
    for package, licence in licences.items():
        print(f"{package:32} {licence}")
    refused = {package for package, licence in licences.items() if not is_allowed(licence)}
    if len(licences) != len(names):
        print(f"FAILED: {len(names)} packages, but the licences of {len(licences)}")
    for package in refused:
        print(f"FAILED: the licence of {package} is not in the list: {licences[package]}")
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(pinned)
        file.flush()
        report = _output(
            "pip-audit", "--format=json", "--progress-spinner=off", "--no-deps", "--disable-pip",
            "-r", file.name, may_fail=True,
        )  # fmt: skip  # a command line
    audit = audit_of(json.loads(report)) if report else Audit(0, names, [])
    if audit.skipped:
        print(
            f"*** NOT AUDITED: no vulnerability data for {len(audit.skipped)} of {len(names)} packages."
        )
        print(
            "*** Run `python -m tests.dependencies` where the index's JSON interface can be reached."
        )
    for each in audit.vulnerable:
        print(f"FAILED: a known vulnerability: {each}")
    print(f"{len(licences)} licences, {audit.audited} packages audited")
    return int(bool(refused or audit.vulnerable or len(licences) != len(names)))


if __name__ == "__main__":
    sys.exit(main())
