"""The README's picture of the demo is of the demo as it is now."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from rich.console import Console

from bridge.simulate.demo import table
from tests.bridge.simulate.test_demo import GOOD
from tests.recording import COLUMNS, PICTURE

SVG = "{http://www.w3.org/2000/svg}"
RESULT = GOOD._replace(input="the standard library's text")


def last_screen(svg: str) -> list[str]:
    """The text that a viewer without animations shows: the end of each row's strip."""
    rows = []
    for strip in ET.fromstring(svg).iter(f"{SVG}g"):
        versions = strip.findall(f"{SVG}text")
        y = int(versions[0].attrib["y"]) - int(versions[-1].attrib["y"])
        assert strip.attrib["transform"] == f"translate(0 {y})"
        rows.append("".join(versions[-1].itertext()))
    return rows


def without_numbers(line: str) -> list[str]:
    return re.sub(r"[\d.,]+|[─┌┐└┘┬┴│]", " ", line).split()


def test_the_picture_ends_with_the_table_that_the_demo_prints_now():
    console = Console(width=COLUMNS)
    with console.capture() as capture:
        console.print(table(RESULT))
    printed = [without_numbers(line) for line in capture.get().splitlines()]
    svg = PICTURE.read_text(encoding="utf-8")
    shown = [without_numbers(line) for line in last_screen(svg)]
    at = shown.index(printed[0])
    assert shown[at : at + len(printed)] == printed
    assert shown[-1] == without_numbers(RESULT.proved)
