"""The judgement on what users install: which licences pass, and what a report of vulnerabilities says."""

from __future__ import annotations

import pytest

from tests.dependencies import Audit, audit_of, is_allowed


@pytest.mark.parametrize(
    "licence",
    [
        "MIT",
        "Apache-2.0 OR GPL-3.0-only",
        "BSD-3-Clause AND MIT",
        "BSD License; Apache Software License",
    ],
)
def test_a_licence_that_asks_nothing_passes(licence: str):
    assert is_allowed(licence)


@pytest.mark.parametrize(
    "licence",
    ["GPL-3.0-only", "MIT AND GPL-3.0-only", "MIT; LGPLv3", "GNU General Public License v2 (GPLv2)",
     "UNKNOWN", ""],
)  # fmt: skip  # a list
def test_any_other_licence_is_refused(licence: str):
    assert not is_allowed(licence)


def test_a_package_without_data_is_not_taken_for_a_safe_one():
    report = {"dependencies": [
        {"name": "a", "version": "1", "vulns": []},
        {"name": "b", "skip_reason": "not found"},
        {"name": "c", "version": "2", "vulns": [{"id": "CVE-1"}, {"id": "CVE-2"}]},
    ]}  # fmt: skip  # a table
    assert audit_of(report) == Audit(2, ["b"], ["c 2: CVE-1, CVE-2"])
