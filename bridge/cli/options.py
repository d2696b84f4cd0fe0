"""Options and arguments that several commands have, and what they mean."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from aolog.cli.parse import where
from aolog.cursor import read_position
from aolog.errors import UsageError
from aolog.storage import Storage

__all__ = ["PLACES", "address_of", "cursor_option", "settings_of", "settings_option"]


def settings_of(
    _context: click.Context, _parameter: click.Parameter, pairs: tuple[str, ...]
) -> dict[str, str]:
    """Of KEY=VALUE, for click."""
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{pair!r} is not KEY=VALUE")
        found[key.strip()] = value
    return found


cursor_option = click.option(
    "--cursor", default="bridge", show_default=True, help="Name of the bridge's cursor."
)
settings_option = click.option(
    "-X", "--set", "settings", multiple=True, metavar="KEY=VALUE", callback=settings_of,
    help="A setting of librdkafka. Repeatable.",
)  # fmt: skip  # options read best one a line

PLACES = """\b
A place is an address, ordinal:N, earliest, latest, a time (2026-01-31T12:00:00Z, UTC unless it
says otherwise), a time ago (15m-ago), cursor:NAME, or kafka:TOPIC/PARTITION@OFFSET: the record
that lies there, which its header names (needs --bootstrap-servers)."""


def address_of(
    path: str, text: str, *, cursor: str, servers: str | None, settings: dict[str, str]
) -> int:
    """The address that a user means. Raises UsageError."""
    from bridge.kafka import check
    from bridge.seeking import address_in_kafka, place

    kind, colon, rest = text.partition(":")
    if colon and kind == "cursor":
        return read_position(path, rest, Storage()).address
    if colon and kind == "kafka":
        if servers is None:
            raise UsageError("kafka:... needs --bootstrap-servers")
        check(settings)
        return address_in_kafka(path, rest, cursor, servers, settings)
    found = where(text, datetime.now(UTC))
    if found is None:
        raise UsageError(
            f"{text!r} is no place in a log",
            hint="use an address, ordinal:N, a time, 15m-ago, earliest, latest, cursor:NAME or"
            " kafka:TOPIC/PARTITION@OFFSET",
        )
    return place(path, found.start, found.ordinal)
