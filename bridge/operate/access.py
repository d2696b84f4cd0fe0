"""Who may ask the HTTP endpoint for what: the address to listen on, the Host header, the token.

- It listens on loopback. Another interface needs a token, and then each request needs it, except
  the page itself, which holds no data, and /healthz and /readyz for probes.
- A Host header that is a name must be configured, or be `localhost`. Otherwise a page on the internet
  could read the endpoint through a name that it lets point to 127.0.0.1 (DNS rebinding). Addresses
  are accepted: a browser sends one only to that address.
- Nothing changes anything without the token.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Callable
from typing import NamedTuple

from aolog.errors import UsageError
from bridge.config.names import address_of
from bridge.config.settings import TOKEN_MIN, wrong_token

OPEN_PATHS = ("/", "/healthz", "/readyz")


class Access(NamedTuple):
    """What was configured."""

    where: str
    token: str | Callable[[], str] | None = None  # or a function that returns the present one
    hosts: tuple[str, ...] = ()  # names in the Host header that are accepted besides `localhost`
    reads_need_it: bool = False  # on loopback, too, reading needs the token

    def address(self) -> tuple[str, int]:
        """HOST and PORT to listen on. Raises UsageError for another interface without a token."""
        host, port = address_of(self.where)
        token = self._token()
        if token is not None and (wrong := wrong_token(token)):
            raise UsageError(
                f"the HTTP token {wrong}",
                hint=f"use at least {TOKEN_MIN}, for example from `openssl rand -hex 16`",
            )
        if self.token is None and not _is_loopback(host):
            raise UsageError(
                f"{self.where} is not a loopback address, and there is no token",
                hint="listen on 127.0.0.1, or give a token with --http-token-file",
            )
        return host, port

    def accepts_host(self, header: str | None) -> bool:
        """Whether a request with this Host header is answered."""
        host = (header or "").strip().lower()
        host = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        own = address_of(self.where)[0].lower()
        return host in {"localhost", own, *map(str.lower, self.hosts)} or _is_address(host)

    def may_read(self, path: str, authorization: str | None) -> bool:
        """Whether a request may see what `path` shows."""
        on_loopback = _is_loopback(address_of(self.where)[0])
        if path in OPEN_PATHS or (on_loopback and not self.reads_need_it):
            return True
        return self.may_act(authorization)

    def may_act(self, authorization: str | None) -> bool:
        """Whether a request carries the token."""
        token = self._token()
        if token is None or authorization is None:
            return False
        kind, _, given = authorization.partition(" ")
        return kind.lower() == "bearer" and hmac.compare_digest(
            given.strip().encode(), token.encode()
        )

    def _token(self) -> str | None:
        return self.token() if callable(self.token) else self.token


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)
