r"""Where the locale is C, paths are shown as UTF-8 all the same, by commands of both command lines:
never as surrogates (`\udcc3\udcb6` for ö). A byte that is no UTF-8 is shown as `\xff`. 8 s: a process
a command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import aolog
from tests.aolog.conftest import ROOT

NAME = os.fsdecode(b"l\xc3\xb6g\xff")
SHOWN = "l\u00f6g" + r"\xff"
OF_CLICK = "l\u00f6g\ufffd"  # in its own messages
NOWHERE = "--bootstrap-servers 127.0.0.1:1"
IN_C = {"LC_ALL": "C", "PYTHONUTF8": "0"}
JSON_TOO = [
    "aolog info LOG", "aolog verify LOG", "aolog cursor set LOG.gone c 0", "bridge status --log LOG",
    "bridge check-config LOG.toml",
]  # fmt: skip  # a command each
COMMANDS = [
    *JSON_TOO, "aolog read LOG.gone", "aolog append LOG.file/log", "aolog repair LOG --into LOG.copy",
    "bridge seek LOG.gone --to earliest",
    f"bridge run --root LOGS --topic t --log-format text {NOWHERE}",
]  # fmt: skip  # a command each


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """A log of an odd name, beside it a file and a configuration; and a root that has it."""
    path = f"{tmp_path}/root/{NAME}"
    with aolog.Writer(path) as log:
        log.append(b"x")
    Path(f"{path}.file").write_bytes(b"a line\n")
    Path(f"{path}.toml").write_text(
        'root = "."\n[clusters.main]\nbootstrap_servers = "kafka:9092"\n', encoding="utf-8"
    )
    return {"LOGS": f"{tmp_path}/root", "LOG": path}


def said(line: str, files: dict[str, str], **environment: str) -> str:
    """Both streams of a command, which have to be UTF-8."""
    for word, path in files.items():
        line = line.replace(word, path)
    module, *words = line.split(" ")
    with subprocess.Popen(
        [sys.executable, "-m", module, *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as child:  # fmt: skip  # one process
        try:
            text = b""
            for part in child.stdout:
                text += part
                if b"goes to main" in part:  # `run` would go on
                    child.terminate()
        finally:
            child.kill()
    assert b"Traceback" not in text
    return text.decode()


@pytest.mark.parametrize("line", COMMANDS)
def test_a_path_is_shown_as_utf8_whatever_the_locale_is(files, line):
    text = said(line, files, **IN_C)
    assert SHOWN in text or OF_CLICK in text, text
    assert r"\udc" not in text


def objects(text: str) -> Iterator[object]:
    for line in text.splitlines():
        if line.startswith("{"):
            yield json.loads(line)


@pytest.mark.parametrize("line", [*JSON_TOO, "bridge status --root LOGS"])
def test_json_has_the_path_as_utf8_too(files, line):
    text = said(f"{line} --json", files, **IN_C)
    found = json.dumps(list(objects(text)), ensure_ascii=False)
    assert json.dumps(SHOWN, ensure_ascii=False)[1:-1] in found or OF_CLICK in found, text
    assert r"\udc" not in text


def test_log_lines_of_json_have_it_too(files):
    line = f"bridge run --root LOGS --topic t {NOWHERE}"
    first = next(objects(said(line, files, **IN_C)))
    assert first["message"] == f"{SHOWN} goes to main"


@pytest.mark.parametrize("line", ["aolog info LOG", f"bridge run --log LOG.gone {NOWHERE}"])
def test_every_locale_shows_the_same(files, line):
    utf8 = ({"LC_ALL": "C", "PYTHONUTF8": "1"}, {"LC_ALL": "C.UTF-8"})
    assert {said(line, files, **each) for each in utf8} == {said(line, files, **IN_C)}
