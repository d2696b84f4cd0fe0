"""A record's signature as bytes: what is signed, the header that carries it, keys and their check. Pure.

    header "aolog-signature", little-endian:
    0    u8   version, 1                    10   u8   length n of the key's id
    1    u8   algorithm, see Algorithm      11   n bytes, the key's id in UTF-8
    2    i64  timestamp, milliseconds       then 32 bytes (HMAC-SHA256) or 64 (Ed25519)

Signed are: the header up to the signature, the topic, the key and the value, each with its length, so
that no byte can move from one to another; an absent key or value differs from an empty one. Other
headers are not signed. The timestamp has Kafka's resolution, so a record keeps its signature from the
log to the consumer.

A key file has a line for each key: `ID ALGORITHM SECRET`, the secret in base64; `#` begins a comment.
Algorithms: `hmac-sha256` (16 bytes or more, shared), `ed25519` (32 bytes, private) and
`ed25519-public` (32 bytes, verifies only). The last line that can sign is the one that signs. To rotate:
add a line to the verifiers' files, then to the signers', and later remove the old line from the verifiers'.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from aolog.errors import UsageError, library_missing

__all__ = ["HEADER_NAME", "Algorithm", "Key", "Keys", "Verdict", "parse_keys", "sign"]

HEADER_NAME = "aolog-signature"
_VERSION = 1
_HEAD = struct.Struct("<BBqB")
_LENGTH = struct.Struct("<Q")
_ID_BYTES_MAX = 255
_HMAC_BYTES_MIN, _ED25519_BYTES = 16, 32
_ABSENT, _PRESENT = b"\0", b"\1"


class Algorithm(IntEnum):
    """How a signature is made; the number is part of the format."""

    HMAC_SHA256 = 1
    ED25519 = 2


class Key(NamedTuple):
    """One line of a key file. secret: raw bytes. can_sign: false for a public key."""

    id: str
    algorithm: Algorithm
    secret: bytes
    can_sign: bool

    def sign(self, data: bytes) -> bytes:
        """The signature. Raises UsageError without the library `cryptography`, for Ed25519."""
        if self.algorithm is Algorithm.HMAC_SHA256:
            return hmac.new(self.secret, data, hashlib.sha256).digest()
        signer = _ed25519().Ed25519PrivateKey.from_private_bytes(self.secret)
        return bytes(signer.sign(data))

    def matches(self, signature: bytes, data: bytes) -> bool:
        """Whether this key made the signature of these bytes. Raises as `sign`."""
        if self.algorithm is Algorithm.HMAC_SHA256:
            return hmac.compare_digest(self.sign(data), signature)
        library = _ed25519()
        if self.can_sign:
            public = library.Ed25519PrivateKey.from_private_bytes(self.secret).public_key()
        else:
            public = library.Ed25519PublicKey.from_public_bytes(self.secret)
        from cryptography.exceptions import InvalidSignature

        try:
            public.verify(signature, data)
        except InvalidSignature:
            return False
        return True


class Verdict(NamedTuple):
    """signed: whether there is a signature. reason: what is wrong with it; None: it is good."""

    signed: bool
    reason: str | None

    @property
    def ok(self) -> bool:
        """Whether the record is as its signer made it."""
        return self.signed and self.reason is None


class Keys:
    """The keys of a file, by id. Immutable; from any thread."""

    def __init__(self, keys: Sequence[Key]) -> None:
        self._by_id = {key.id: key for key in keys}

    def signer(self, key_id: str | None = None) -> Key:
        """The key that signs: that of the id, or the last that can. Raises UsageError."""
        able = [key for key in self._by_id.values() if key.can_sign]
        if key_id is None and able:
            return able[-1]
        key = self._by_id.get(key_id or "")
        if key is None or not key.can_sign:
            wanted = "no key" if key_id is None else f"no key {key_id!r}"
            raise UsageError(f"the key file has {wanted} that can sign")
        return key

    def check(
        self,
        headers: Sequence[tuple[str, bytes | None]],
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int | None,
    ) -> Verdict:
        """Whether a record is as its signer made it. timestamp_ms: the record's; None: it is not
        compared, since the broker has set another one."""
        found = [header for name, header in headers if name == HEADER_NAME]
        if not found:
            return Verdict(signed=False, reason=None)
        if len(found) > 1:
            return Verdict(True, "it has several signatures")
        header = found[0] or b""
        if len(header) < _HEAD.size or header[0] != _VERSION:
            return Verdict(True, "its signature is of an unknown version, or cut off")
        _, algorithm, signed_ms, length = _HEAD.unpack_from(header)
        end = _HEAD.size + length
        key_id = header[_HEAD.size : end].decode(errors="replace")
        known = self._by_id.get(key_id)
        if known is None:
            return Verdict(True, f"the key file has no key {key_id!r}")
        if known.algorithm != algorithm:  # a public key must never serve as a shared secret
            return Verdict(True, f"key {key_id!r} is for another algorithm")
        if timestamp_ms is not None and timestamp_ms != signed_ms:
            return Verdict(True, "its timestamp was changed")
        if not known.matches(header[end:], _signed(header[:end], topic, key, value)):
            return Verdict(True, "its topic, key, value or signature was changed")
        return Verdict(True, None)


def sign(
    signer: Key, topic: str, key: bytes | None, value: bytes | None, timestamp_ms: int
) -> tuple[str, bytes]:
    """The header that carries the signature."""
    name = signer.id.encode()
    head = _HEAD.pack(_VERSION, signer.algorithm, timestamp_ms, len(name)) + name
    return HEADER_NAME, head + signer.sign(_signed(head, topic, key, value))


def _signed(head: bytes, topic: str, key: bytes | None, value: bytes | None) -> bytes:
    parts = [head]
    for part in (topic.encode(), key, value):
        parts += [_ABSENT] if part is None else [_PRESENT, _LENGTH.pack(len(part)), part]
    return b"".join(parts)


def parse_keys(text: str, name: str) -> Keys:
    """The keys of a file's text. name: the file's, for errors, which never quote a secret. Raises
    UsageError."""
    keys: list[Key] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 3:
            raise UsageError(f"{name}: line {number} is not ID ALGORITHM SECRET")
        try:
            keys.append(_key(*words))
        except ValueError as error:
            raise UsageError(f"{name}: line {number}: {error}") from None
    if not keys:
        raise UsageError(f"{name}: has no key", hint="write lines of ID ALGORITHM SECRET")
    ids = [key.id for key in keys]
    if len(set(ids)) < len(ids):
        raise UsageError(f"{name}: an id is used twice; give each key its own")
    return Keys(keys)


def _key(key_id: str, algorithm: str, secret: str) -> Key:
    """Raises ValueError."""
    try:
        raw = base64.b64decode(secret, validate=True)
    except binascii.Error:
        raise ValueError("the secret is not base64") from None
    if len(key_id.encode()) > _ID_BYTES_MAX:
        raise ValueError(f"the id is longer than {_ID_BYTES_MAX} bytes")
    if algorithm == "hmac-sha256":
        if len(raw) < _HMAC_BYTES_MIN:
            raise ValueError(f"the secret has {len(raw)} bytes, fewer than {_HMAC_BYTES_MIN}")
        return Key(key_id, Algorithm.HMAC_SHA256, raw, can_sign=True)
    if algorithm not in {"ed25519", "ed25519-public"}:
        raise ValueError("the algorithm is neither hmac-sha256, ed25519 nor ed25519-public")
    if len(raw) != _ED25519_BYTES:
        raise ValueError(f"the key has {len(raw)} bytes, and Ed25519's have {_ED25519_BYTES}")
    return Key(key_id, Algorithm.ED25519, raw, can_sign=algorithm == "ed25519")


def _ed25519() -> Any:
    """The library's module. Raises UsageError without the library `cryptography`."""
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ModuleNotFoundError as error:
        raise (library_missing(error) or error) from None
    return ed25519
