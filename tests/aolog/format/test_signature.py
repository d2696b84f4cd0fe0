"""Signatures: what they cover, what breaks them, and how `aolog verify` reports it."""

import base64
import json

import pytest

from aolog import Reader, Writer
from aolog.errors import UsageError
from aolog.format.signature import HEADER_NAME, parse_keys, sign
from aolog.write.signed import append_signed
from tests.aolog.commands import run

pytest.importorskip("cryptography")
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

RAW, PLAIN = serialization.Encoding.Raw, serialization.PublicFormat.Raw
PRIVATE = bytes(range(32))
PUBLIC = Ed25519PrivateKey.from_private_bytes(PRIVATE).public_key().public_bytes(RAW, PLAIN)
SHARED = b"a shared secret of many bytes"


def line(key_id, algorithm, secret):
    return f"{key_id} {algorithm} {base64.b64encode(secret).decode()}\n"


HMAC, ED = line("h", "hmac-sha256", SHARED), line("e", "ed25519", PRIVATE)
ED_PUBLIC = line("e", "ed25519-public", PUBLIC)
RECORD = ("topic", b"key", b"value", 1_700_000_000_123)


def keys(text):
    return parse_keys(text, "keys")


@pytest.fixture(params=[(HMAC, HMAC), (ED, ED_PUBLIC), (ED, ED)], ids=["hmac", "public", "private"])
def pair(request):
    signs, verifies = request.param
    return keys(signs).signer(), keys(verifies)


def test_an_intact_record_is_as_signed(pair):
    signer, verifier = pair
    header = sign(signer, *RECORD)
    assert verifier.check([("other", b"x"), header], *RECORD).ok
    assert verifier.check([header], *RECORD[:3], None).ok, (
        "a broker's own timestamp is not compared"
    )


@pytest.mark.parametrize(
    "changed",
    [
        ("topic2", b"key", b"value", RECORD[3]), ("topic", b"Key", b"value", RECORD[3]),
        ("topic", b"key", b"valuE", RECORD[3]), ("topic", b"key", b"value", RECORD[3] + 1),
        ("topic", None, b"value", RECORD[3]), ("topic", b"key", None, RECORD[3]),
        ("topic", b"keyv", b"alue", RECORD[3]), ("topick", b"ey", b"value", RECORD[3]),
    ],
    ids=range(8),
)  # fmt: skip  # a table
def test_any_change_is_found(pair, changed):
    signer, verifier = pair
    verdict = verifier.check([sign(signer, *RECORD)], *changed)
    assert verdict.signed
    assert not verdict.ok


def test_every_bit_of_the_header_matters(pair):
    signer, verifier = pair
    name, header = sign(signer, *RECORD)
    for i in range(len(header)):
        altered = header[:i] + bytes([header[i] ^ 1]) + header[i + 1 :]
        assert not verifier.check([(name, altered)], *RECORD).ok, i
        assert not verifier.check([(name, header[:i])], *RECORD).ok, i


def test_absent_and_empty_differ():
    signer, verifier = keys(HMAC).signer(), keys(HMAC)
    assert not verifier.check([sign(signer, "t", None, b"", 1)], "t", b"", b"", 1).ok
    assert not verifier.check([sign(signer, "t", b"", None, 1)], "t", b"", b"", 1).ok


def test_a_record_without_a_signature_is_unsigned_and_one_with_two_is_forged():
    signer, verifier = keys(HMAC).signer(), keys(HMAC)
    assert not verifier.check([("a", b"b")], *RECORD).signed
    assert not verifier.check([sign(signer, *RECORD)] * 2, *RECORD).ok


def test_a_public_key_does_not_serve_as_a_shared_secret():
    forger = keys(line("e", "hmac-sha256", PUBLIC)).signer()
    assert "another algorithm" in keys(ED_PUBLIC).check([sign(forger, *RECORD)], *RECORD).reason


def test_keys_are_rotated_by_their_ids():
    old, new = line("2025", "hmac-sha256", SHARED), line("2026", "hmac-sha256", SHARED[::-1])
    signed_old = sign(keys(old).signer(), *RECORD)
    both = keys(old + new)
    assert both.signer().id == "2026"
    assert both.signer("2025").id == "2025"
    assert both.check([signed_old], *RECORD).ok
    assert both.check([sign(both.signer(), *RECORD)], *RECORD).ok
    assert "no key '2025'" in keys(new).check([signed_old], *RECORD).reason


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no key"), ("# h hmac-sha256 x", "no key"), ("h hmac-sha256", "line 1"),
        ("h md5 AAAA", "line 1: the algorithm"), ("h hmac-sha256 !", "not base64"),
        (line("h", "hmac-sha256", b"short"), "5 bytes"), (line("e", "ed25519", b"x" * 31), "31 bytes"),
        (HMAC + HMAC, "twice"), (line("i" * 300, "hmac-sha256", SHARED), "longer"),
    ],
    ids=range(9),
)  # fmt: skip  # a table
def test_a_wrong_key_file_is_refused_and_its_secrets_are_not_quoted(text, says):
    with pytest.raises(UsageError, match=says) as caught:
        keys(text)
    assert base64.b64encode(SHARED).decode() not in str(caught.value)


def test_a_public_key_cannot_sign():
    with pytest.raises(UsageError, match="can sign"):
        keys(ED_PUBLIC).signer()
    with pytest.raises(UsageError, match="'x'"):
        keys(HMAC).signer("x")


# --- a log --------------------------------------------------------------------------------------


def verified(log, key_file):
    done = run("verify", log, "--key-file", key_file, "--json")
    return done.exit_code, json.loads(done.stdout)["signatures"]


def test_verify_tells_signed_unsigned_and_forged_records_of_a_log_apart(tmp_path):
    log, key_file = tmp_path / "log", tmp_path / "keys"
    key_file.write_text(ED_PUBLIC, encoding="utf-8")
    signer = keys(ED).signer()
    with Writer(log, topic="picks") as writer:
        append_signed(writer, signer, b"a", key=b"k", headers=(("h", b"1"),))
        append_signed(writer, signer, b"b", topic="elsewhere", timestamp=1_700_000_000_123_456)
    assert verified(log, key_file) == (0, {"signed": 2, "unsigned": 0, "forged": 0, "wrong": []})
    with Reader(log) as reader:
        first = next(iter(reader))
    assert first.headers[-1][0] == HEADER_NAME
    with Writer(log) as writer:
        unsigned = writer.append(b"c")
        forged = writer.append(b"A", key=b"k", headers=first.headers, timestamp=first.timestamp)
    status, found = verified(log, key_file)
    assert status == 3
    assert [found[name] for name in ("signed", "unsigned", "forged")] == [2, 1, 1]
    assert [wrong["address"] for wrong in found["wrong"]] == [unsigned, forged]


def test_a_record_of_no_topic_cannot_be_signed(tmp_path):
    with Writer(tmp_path / "log") as writer, pytest.raises(UsageError, match="topic"):
        append_signed(writer, keys(HMAC).signer(), b"a")
