"""`ingest`: HTTP into logs."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aolog.cli.output import out
from aolog.cli.parse import DIRECTORY
from bridge.cli.options import log_format_option, warn_of
from bridge.cli.running import on_signals

if TYPE_CHECKING:
    from bridge.config.run_options import LogFormat
    from bridge.config.settings import CurrentToken


@click.command
@click.option("--root", required=True, type=DIRECTORY, help="Directory of the logs, one a topic.")
@click.option(
    "--http", metavar="HOST:PORT", default="127.0.0.1:9110", show_default=True,
    help="Where to listen; other than loopback needs a token.",
)  # fmt: skip  # options read best one a line
@click.option(
    "--http-token-file", "token_file", type=click.Path(exists=True, dir_okay=False),
    help="File with the bearer token; then each request needs it.",
)  # fmt: skip  # as above
@click.option(
    "--http-host", "hosts", multiple=True, metavar="NAME",
    help="A name that clients use in the Host header. Repeatable.",
)  # fmt: skip  # as above
@click.option(
    "--topic", "topics", multiple=True, metavar="TOPIC",
    help="The only topics that are accepted. Repeatable.  [default: any]",
)  # fmt: skip  # as above
@click.option(
    "--max-body-bytes", default=8 << 20, show_default=True, type=click.IntRange(1, 1 << 30),
    help="Largest body of a request.",
)  # fmt: skip  # as above
@click.option(
    "--max-bytes", type=click.IntRange(1), metavar="N",
    help="Largest size of each log; a full log answers 503 until a bridge has drained it.",
)  # fmt: skip  # as above
@log_format_option
def ingest(
    *,
    root: str,
    http: str,
    token_file: str | None,
    hosts: tuple[str, ...],
    topics: tuple[str, ...],
    max_body_bytes: int,
    max_bytes: int | None,
    log_format: LogFormat,
) -> None:
    """Answer a POST when its records are durable in a log, one log for each topic.

    POST /topics/TOPIC takes application/x-ndjson ({"value": ..., "key": ...} on each line) or
    application/octet-stream (u32le length before each value). GET /topics/TOPIC?from=ADDRESS reads.
    With the header Idempotency-Key a repeated request appends nothing. 503 with Retry-After: busy or
    full; send the request again. A bridge drains the logs: aolog-bridge run --root DIR. Ends at Ctrl-C.

    \b
    Examples:
      aolog-bridge ingest --root LOGS
      aolog-bridge ingest --root LOGS --http :9110 --topic clicks
      curl -d '{"value": "hi"}' -H 'Content-Type: application/x-ndjson' \\
          localhost:9110/topics/clicks
    """
    from aolog.log.retention import Retention
    from bridge.ingest.logs import Logs
    from bridge.ingest.routes import serving
    from bridge.operate.access import Access
    from bridge.operate.log_lines import set_up

    token = None if token_file is None else _token(token_file)
    access = Access(http, token, hosts)
    access.address()  # an unusable address is refused before anything is created
    set_up(log_format)
    retention = None if max_bytes is None else Retention(max_bytes=max_bytes, when_full="error")
    logs = Logs(root, topics, {"retention": retention})
    over = threading.Event()
    on_signals(over.set)
    try:
        with serving(access, logs, body_bytes=max_body_bytes) as (host, port):
            out.line(f"http://{host}:{port}/")
            out.flush()
            over.wait()
    finally:
        logs.close()


def _token(path: str) -> CurrentToken:
    from bridge.config.settings import CurrentToken, exposures, setting_of

    found = setting_of("http.token", {"file": path}, Path())
    if isinstance(found, str):
        raise click.BadParameter(found, param_hint="--http-token-file")
    warn_of(exposures({"--http-token-file": found}))
    return CurrentToken("--http-token-file", found)
