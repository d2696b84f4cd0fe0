"""Whether a broker's certificate was refused because it does not name the host. librdkafka reports
each refused certificate in the same words, and blames ssl.ca.location for all of them."""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["names_another_host"]

_ANSWER_S = 2.0
_OTHER_NAME = {62, 64}  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH


def names_another_host(broker: str, settings: Mapping[str, Any]) -> bool:
    """Whether the certificate of HOST:PORT is trusted but has other names: asks the broker, and
    waits two seconds at most. False also where that cannot be found out. settings: librdkafka's."""
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
