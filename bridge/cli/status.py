"""`status`: shows a bridge's status, from the running process or from the disk."""

from __future__ import annotations

import http.client
import json
import os
import shlex
import shutil
import time
from typing import TYPE_CHECKING, Any

import click

from aolog import Lag, Reader
from aolog.cli.cursor_state import CursorState, cursor_state
from aolog.cli.lock_holders import Holders, require_log
from aolog.cli.output import human_bytes, human_seconds, iso_time, json_option, out
from aolog.cli.parse import DIRECTORY
from aolog.errors import AologError, NoSuchCursor, NotALog, counted, records_lost
from aolog.log.cursor_file import cursor_names
from aolog.maintenance.archive.protection import CURSOR as ARCHIVE
from aolog.storage.storage import Storage
from bridge.cli.log_table import lines_of
from bridge.cli.report import words
from bridge.config.names import BRIDGE, BUFFER, REPLAY, address_of, dead_letter_path
from bridge.errors import NotRunning

if TYPE_CHECKING:
    from bridge.deliver.known_gaps import KnownGaps

_ANSWER_S = 5.0
_ANSWER_BYTES_MAX = 256 << 20
_REFUSED = {401, 421}  # no token, or a name in the Host header that is not configured
_LOSSES_SHOWN = 5  # of each log; --json lists more


@click.command
@click.option(
    "--http", metavar="HOST:PORT", help="Address of the running bridge, as in `run --http`."
)
@click.option(
    "--config", "file", type=click.Path(),
    help="The bridge's configuration; its `http` and `http_token` are used.",
)  # fmt: skip  # options read best one a line
@click.option("--log", "path", type=DIRECTORY, help="Read the disk: directory of one log.")
@click.option("--root", type=DIRECTORY, help="Read the disk: directory tree of logs.")
@click.option(
    "--cursor", default=BRIDGE, show_default=True,
    help="Name of the cursor on disk. Of a Buffer's log: its own.",
)  # fmt: skip  # as above
@json_option
def status(
    *, http: str | None, file: str | None, path: str | None, root: str | None, cursor: str,
    as_json: bool,
) -> None:  # fmt: skip  # as the options
    """Show the status of a running bridge over HTTP, or what can be read from the disk, and what to
    do about each problem.

    States: connecting, draining (there is a backlog), limited (as draining, held back by a rate
    limit), live (no backlog; the newest records may be under way), blocked (an error stopped it, or
    it waits to try again), stopped. From the disk: running or stopped, the cursor and the lag after
    it. Of an archive of `pull --units`, also its finished units.

    LOST: records that are damaged in the log, or removed by retention before they were delivered. Of a
    running bridge: since it started. From the disk: since the cursor exists, with the last gaps.

    \b
    Examples:
      aolog-bridge status --http 127.0.0.1:9100
      aolog-bridge status --config bridge.toml --json
      aolog-bridge status --log /var/lib/app/log

    \b
    Exit status: 0 shown, 2 usage, 6 no bridge answers.
    """
    if sum(given is not None for given in (http, file, path, root)) != 1:
        raise click.UsageError("name one of --http, --config, --log and --root")
    token = None
    if file is not None:
        from bridge.config.load import load

        config = load(file)
        if config.http is None:
            raise click.UsageError("the configuration has no http; name a --log or a --root")
        http = config.http
        if config.http_token is not None:
            token = config.http_token.value.get_secret_value()
    found = _from_disk(path, root, cursor) if http is None else ask(http, token)
    if as_json:
        out.json(found)
    else:
        _show(found)


def ask(where: str, token: str | None = None) -> dict[str, Any]:
    """The /status of a running bridge. Raises NotRunning, also if the bridge refuses to answer."""
    connection = http.client.HTTPConnection(*address_of(where), timeout=_ANSWER_S)
    try:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        connection.request("GET", "/status", headers=headers)
        answer = connection.getresponse()
        body = answer.read(_ANSWER_BYTES_MAX)
        try:
            found = json.loads(body)
        except ValueError:
            found = None
        if answer.status in _REFUSED and isinstance(found, dict) and "error" in found:
            raise NotRunning(
                f"the bridge at {where} refuses: {found['error']}",
                hint="`status --config FILE` sends the http_token of FILE; --log and --root read the disk",
            )
        if answer.status != 200 or not isinstance(found, dict) or "logs" not in found:
            raise ValueError("another program answers there")
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else error
        raise NotRunning(
            f"no bridge answers at {where}: {reason}", hint="is it running, with --http?"
        ) from None
    finally:
        connection.close()
    return found


def _from_disk(path: str | None, root: str | None, cursor: str) -> dict[str, Any]:
    from bridge.supervise.discovery import Tree, missing, walk

    if root is not None and (why := missing(root)) is not None:
        raise NotALog(why, hint="name the directory of a tree of logs", path=root)
    tree = Tree({path: path}, [], {}) if path is not None else walk(root or "")
    found: dict[str, Any] = {
        "logs": [_one(name, where, cursor) for name, where in tree.logs.items()]
    }
    if tree.unlisted:
        found["unlisted"] = tree.unlisted
    if root is not None:
        from bridge.operate.unit_events import events_of

        if events := events_of(root):
            seen = sum(event["seen"] for event in events)
            found["units"] = {"finished": len(events), "seen": seen, "last": events[-1]}
    return found


def _one(name: str, path: str, cursor: str) -> dict[str, Any]:
    """A row from the disk. Reads the cursor without its lock."""
    from bridge.operate.unit_events import is_pulled

    holders = Holders(require_log(path))
    names = cursor_names(path, Storage())
    if cursor == BRIDGE and BRIDGE not in names and BUFFER in names:
        cursor = BUFFER
    found = _state(path, cursor, holders)
    lag = found.lag or Lag(None, 0, None)
    losses, unread = _losses_of(path, cursor)
    pruned, at = found.pruned, found.position
    if pruned is not None and at is not None:
        losses.add(pruned, at.ordinal)
    pulled = cursor == BRIDGE and BRIDGE not in names and is_pulled(path)
    held = holders.of(path).held if pulled else found.held  # by its writer
    states = {True: "running", False: "stopped", None: "unknown"}
    return {
        "log": name,
        "path": path,
        "cursor": cursor,
        "state": states[held],
        "pulled": pulled,
        "committed": None if at is None else at.address,
        "lag_records": lag.records,
        "lag_bytes": lag.bytes,
        "lag_seconds": lag.seconds,
        "lost_records": losses.records if unread is None else None,
        "pruned_records": None if pruned is None else pruned.records_lost,
        "gaps": losses.gaps,
        "dead_lettered": _dead_letters(path, cursor),
        "losses": losses.to_json()["last"],
        "error": unread if found.state == "ok" else found.state,
        "archive": _archive_on_disk(path, holders),
    }


def _state(path: str, cursor: str, holders: Holders) -> CursorState:
    """The state of a cursor; of one that does not exist yet, as if it were before the first record."""
    try:
        return cursor_state(path, cursor, holders)
    except NoSuchCursor:
        with Reader(path) as reader:
            return CursorState(cursor, "ok", None, reader.lag(), held=False)


def _dead_letters(path: str, cursor: str) -> int | None:
    """How many were not sent again; None if that cannot be read."""
    letters = dead_letter_path(path, cursor)
    if not Storage().exists(letters):
        return 0
    try:
        lag = _state(letters, REPLAY, Holders(require_log(letters))).lag
    except AologError:
        return None
    return None if lag is None else lag.records


def _archive_on_disk(path: str, holders: Holders) -> dict[str, Any] | None:
    """How far the log is archived, by the archiver's cursor; None if there never was an archiver."""
    try:
        found = cursor_state(path, ARCHIVE, holders)
    except NoSuchCursor:
        return None
    end = None if found.position is None else found.position.address
    behind = None if found.lag is None else found.lag.bytes
    error = None if found.state == "ok" else found.state
    return {"end": end, "behind_bytes": behind, "error": error}


def _losses_of(path: str, cursor: str) -> tuple[KnownGaps, str | None]:
    """What bridges have counted for a cursor; and an error's code if that cannot be read."""
    from bridge.deliver.known_gaps import KnownGaps, LossFile

    try:
        with Reader(path) as reader:
            return LossFile(reader, cursor, Storage()).gaps, None
    except AologError as error:
        return KnownGaps(), error.code


def summary(whole: dict[str, Any]) -> str:
    """All logs together, without the reasons. whole: the overview of `/status`."""
    text = f"{whole['state']}: {counted(whole['logs'], 'log')}, {words(whole)}"
    if whole["lag_records"] and whole["lag_seconds"] is not None:
        text += f", the oldest pending {human_seconds(whole['lag_seconds'])} old"
    return text


def headlines(found: dict[str, Any]) -> list[str]:
    """What concerns more than one log. found: `/status`."""
    whole = found["overview"]
    lines = [summary(whole)]
    of_logs = {f"{log['log']}: {log['error']}" for log in found["logs"]}
    if whole["error"] and whole["error"] not in of_logs:  # the root is missing
        lines.append(whole["error"])
    for cluster in found.get("clusters", ()):
        since_s = max(0.0, time.time() - cluster["since_s"])
        lines.append(
            f"cluster {cluster['cluster']}: {cluster['state']}, for {human_seconds(since_s)}"
        )
    return lines


def _archive_words(archive: dict[str, Any]) -> str:
    """How far a log is archived, and what that cost this process."""
    words = "nothing is archived yet"
    if archive["end"] is not None:
        words = f"archived up to address {archive['end']}"
    if archive["behind_bytes"] is not None:
        words += f", {human_bytes(archive['behind_bytes'])} to come"
    if "requests" in archive:
        requests = counted(archive["requests"], "request", ",")
        words += f" ({requests}, {human_bytes(archive['sent_bytes'])} sent)"
    return words + (f": {archive['error']}" if archive["error"] else "")


def _show(found: dict[str, Any]) -> None:
    whole = found.get("overview")
    if whole is not None:
        for headline in headlines(found):
            out.line(headline)
    if found["logs"]:
        width = shutil.get_terminal_size().columns if out.is_terminal else None
        for line in lines_of(found["logs"], width):
            out.line(line.text)
    elif whole is None:
        out.line("there is no log")
    for name, why in found.get("unlisted", {}).items():
        out.line(f"{name} cannot be listed: {why}")
    if (units := found.get("units")) is not None:
        last = units["last"]
        out.line(
            f"units: {units['finished']:,} finished, {units['seen']:,} records; the last is"
            f" {last['topic']}/{last['partition']}, {last['length']:,} offsets from {last['offset']:,},"
            f" by {last['host']} in {human_seconds(last['duration'])}"
        )
    for log in found["logs"]:
        shown = log.get("losses", ())[-_LOSSES_SHOWN:]
        if (earlier := log.get("gaps", 0) - len(shown)) > 0 and shown:
            out.line(f"{log['log']}: {counted(earlier, 'earlier gap', ',')}: see --json")
        for loss in shown:
            when = iso_time(loss["at"] * 1_000_000)
            out.line(
                f"{log['log']}: {records_lost(loss['records_lost'])} lost, addresses {loss['begin']} to "
                f"{loss['end']} ({loss['reason']}), found {when}"
            )
        if (archive := log.get("archive")) is not None:
            out.line(f"{log['log']}: {_archive_words(archive)}")
        scrub = log.get("scrub")
        if scrub is not None and scrub["damage"]:
            damaged = counted(scrub["damage"], "damaged place")
            out.line(
                f"{log['log']}: {damaged} found; see `aolog verify {shlex.quote(log['path'])}`"
            )
