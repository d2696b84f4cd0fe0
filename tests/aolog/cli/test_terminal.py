"""What a terminal gets of both command lines: no sign of a record or a name that it would act on. Files
and pipes get the exact bytes."""

from __future__ import annotations

import json
import re

import pytest

import aolog
from tests.aolog.commands import on_terminal, well
from tests.aolog.conftest import fill

# A colour, a title, a line that overwrites itself, C1's beginning of a command, a line of Unicode's,
# text that runs backwards, DEL, and what is no text.
HOSTILE = "\x1b[31m\x1b]0;x\x07a\rb\x9b2J\u2028\u202ec\x7f".encode() + b"\xff\n"
SHOWN = rb"\u001b[31m\u001b]0;x\u0007a\rb\u009b2J\u2028\u202ec\u007f\xff"
PLAIN = "\ttab, caf\u00e9, \u3000, \U0001f468\u200d\U0001f469".encode()
ACTED_ON = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def harmless(seen: bytes) -> str:
    """As text, in which there is nothing that a terminal acts on but ends of lines and tabs."""
    text = seen.decode()
    assert not ACTED_ON.search(text), text
    return text


@pytest.mark.parametrize("command", ["read", "tail"])
def test_a_value_is_a_line_of_harmless_text(log_path, command):
    fill(log_path, [HOSTILE, PLAIN, None])
    status, seen = on_terminal("aolog", command, log_path)
    assert (status, seen) == (0, SHOWN + rb"\n" + b"\n" + PLAIN + b"\n\n")
    harmless(seen)


def test_json_is_harmless_and_says_the_same(log_path):
    text = HOSTILE[:-2].decode()
    with aolog.Writer(log_path, topic=text) as log:
        log.append(HOSTILE[:-2], key=HOSTILE[:-2], headers=((text, HOSTILE[:-2]),), topic=text)
        log.append(HOSTILE)
    status, seen = on_terminal("aolog", "read", "--json", log_path)
    assert status == 0
    piped = well("read", "--json", log_path).stdout_bytes
    assert b"\xc2\x9b" in piped  # as it was appended
    lines = harmless(seen).splitlines()
    assert list(map(json.loads, lines)) == list(map(json.loads, piped.split(b"\n")[:-1]))


@pytest.mark.parametrize(
    "line",
    ["aolog info LOG", "aolog info LOG --json", "aolog verify LOG", "aolog read LOG.gone", "aolog repair LOG --into LOG.copy",
     "bridge status --log LOG", "bridge check-config LOG.gone"],
)  # fmt: skip  # a command each
def test_names_of_files_are_harmless(tmp_path, line):
    log = tmp_path / "\x1b]0;title\x07\x9b\u202e"
    with aolog.Writer(log, topic="\x1b]0;") as writer:
        writer.append(b"x")
    module, *words = line.split()
    _, seen = on_terminal(module, *(word.replace("LOG", str(log)) for word in words))
    assert b"]0;title" in seen
    for sign in ("\x1b]", "\x07", "\x9b", "\u202e"):  # a bar of progress has signs of its own
        assert sign.encode() not in seen, seen


@pytest.mark.parametrize("line", ["verify LOG", "repair LOG --into COPY", "backup LOG COPY"])
def test_long_work_shows_on_a_terminal_how_far_it_is(log_path, line):
    fill(log_path, [b"x" * 50_000] * 100, slab_bytes=500_000)
    copies = iter("abc")

    def words(*more: str) -> list[str]:
        copy = f"{log_path}-{next(copies)}"
        return [*line.replace("LOG", log_path).replace("COPY", copy).split(), *more]

    status, seen = on_terminal("aolog", *words())
    assert status == 0
    shares = [int(share) for share in re.findall(rb"(\d+)%", seen)]
    assert len(shares) > 9
    assert (shares, shares[-1]) == (sorted(shares), 100)
    status, seen = on_terminal("aolog", *words("--json"))
    assert (status, b"%" in seen) == (0, False)
    assert well(*words()).stderr == ""
