"""Headers that Kafka's client sends as they are. Pure.

For the client a name ends at its first NUL. It sends the bytes before it, and from there on bytes of
something else; the consumer gets another name, and nothing shows that.
"""

from __future__ import annotations

from collections.abc import Iterable

from aolog.errors import RecordRefused
from aolog.record import Headers
from aolog.write.validate import check_headers
from bridge.kafka.error_table import NUL_IN_HEADER, row_of


def are_altered(headers: Iterable[tuple[str, bytes | None]]) -> bool:
    """Whether the client would send other headers than these."""
    return any("\0" in name for name, _ in headers)


def client_headers(headers: object) -> Headers:
    """The headers as pairs. Raises RecordRefused for what a log refuses, and for what the client would
    alter; it ends the process where a name has no UTF-8 form."""
    checked, _ = check_headers(headers)
    if are_altered(checked):
        raise RecordRefused(row_of(NUL_IN_HEADER).reads, hint="use another name")
    return checked
