"""Why the client refused a broker's certificate: librdkafka gives the same text for every cause, and
blames ssl.ca.location. So the bridge connects to the broker itself, outside of the client's callbacks,
to see whether the certificate only lacks the host's name."""

from __future__ import annotations

import socket
import ssl
import time
from typing import TYPE_CHECKING, Any

from bridge.kafka.client import broker_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_ANSWER_S = 2.0
_AGAIN_S = 30.0  # the client reports a refused certificate each second
_REFUSED = "certificate verify failed"  # in the client's text
_OTHER_NAME = {62, 64}  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH


class CertificateProbe:
    """Of one client. settings: librdkafka's. One thread at a time."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._broker: str | None = None  # to be probed
        self._probed: dict[str, tuple[bool, float]] = {}  # the verdict, and when

    def refused(self, text: str) -> None:
        """Notes a TLS failure, as the client describes it. Does not block: for callbacks."""
        if _REFUSED in text:
            self._broker = broker_of(text)

    def reason(self) -> str | None:
        """Why the last noted certificate was refused, if that is known. Connects to the broker, for
        two seconds at most, and at most every 30 s."""
        broker, self._broker = self._broker, None
        if broker is None:
            return None
        now_s = time.monotonic()
        names_another, probed_s = self._probed.get(broker, (False, -_AGAIN_S))
        if now_s - probed_s >= _AGAIN_S:
            names_another = _names_another_host(broker, self._settings)
            self._probed[broker] = names_another, now_s
        if not names_another:
            return None
        host = broker.rpartition(":")[0]
        return (
            f"_SSL: {broker}: its certificate is trusted, but does not name the host {host!r}: "
            "connect by a name that is in the certificate"
        )


def _names_another_host(broker: str, settings: Mapping[str, Any]) -> bool:
    """Whether the certificate is trusted, but has other names. False also if that cannot be found
    out."""
    host, _, port = broker.rpartition(":")
    host = host.strip("[]")
    try:
        context = _context(settings)
        with (
            socket.create_connection((host, int(port)), timeout=_ANSWER_S) as plain,
            context.wrap_socket(plain, server_hostname=host),
        ):
            return False
    except ssl.SSLCertVerificationError as error:
        return error.verify_code in _OTHER_NAME
    except (OSError, ValueError):
        return False


def _context(settings: Mapping[str, Any]) -> ssl.SSLContext:
    """Trusts what the client trusts. Raises OSError."""
    location, text = settings.get("ssl.ca.location"), settings.get("ssl.ca.pem")
    if text:
        return ssl.create_default_context(cadata=str(text))
    if location and location != "probe":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            context.load_verify_locations(cafile=str(location))
        except IsADirectoryError:
            context.load_verify_locations(capath=str(location))
        return context
    return ssl.create_default_context()
