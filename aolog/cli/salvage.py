"""`aolog salvage`: prints the remains of damaged frames."""

from __future__ import annotations

import base64
from typing import Any

import click

from aolog.cli.output import json_option, out, to_stderr
from aolog.cli.parse import log_argument
from aolog.errors import counted, one_line
from aolog.log.directory import Log
from aolog.maintenance.audit import audit
from aolog.maintenance.salvage import salvage_slab
from aolog.storage.storage import Storage


@click.command(
    epilog="""\b
Examples:
  aolog salvage LOG
  aolog salvage LOG --json > salvaged.jsonl
  aolog salvage LOG --json | jq -r '.value_base64 | @base64d'

Every line is UNVERIFIED: the frame's checksum is wrong, so any byte of the record may be wrong. A line
has the address that the record would have, the word "unverified", the reason ("body": a byte of the
frame's body is wrong; "header": a byte of its header is wrong, and the body is intact), and the value.

With --json each line is an object: unverified (true), address, slab, offset, index, reason,
timestamp_us, topic, key_base64, value_base64 and headers.

Nothing is written into LOG. Nothing can be salvaged from a log of queuefka: it has no checksum for
headers. Exit status 0, also if nothing is found."""
)
@log_argument
@json_option
def salvage(
    log: str,
    as_json: bool,  # noqa: FBT001 -- click passes options by name
) -> None:
    """Print the remains of damaged frames of LOG, unverified."""
    count = 0
    with Log(log, Storage()) as opened:
        opened.require_slabs()
        for slab in audit(opened).slabs:
            for found in salvage_slab(slab, opened.storage):
                count += 1
                if as_json:
                    out.json(found)
                else:
                    out.line(_line(found))
    out.flush()
    if not as_json:
        what = f"{counted(count, 'record', ',')}, unverified," if count else "nothing"
        to_stderr(f"{log}: {what} found in damaged frames")


def _line(found: dict[str, Any]) -> str:
    text = found["value_base64"]
    value = "-" if text is None else str(base64.b64decode(text), "utf-8", "backslashreplace")
    return f"{found['address']}\tunverified\t{found['reason']}\t{one_line(value)}"
