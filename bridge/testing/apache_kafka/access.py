"""How clients reach a cluster: TLS with a certificate made for it, SASL with a password made for it."""

from __future__ import annotations

import secrets
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

from bridge.testing.apache_kafka.jars import keytool

LISTENER: Final = "CLIENTS"
_USER: Final = "aolog"
_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_VALID_DAYS: Final = "365"


class Access(NamedTuple):
    """How clients reach a cluster."""

    config: dict[str, object]  # properties of the server
    listeners: dict[str, str]  # its further listener, if there is one
    settings: dict[str, str]  # librdkafka's, without the servers


def make_access(directory: Path, *, tls: bool, sasl: bool) -> Access:
    """Makes keys in the directory, which should be private. Raises KafkaUnavailable."""
    if not tls and not sasl:
        return Access({}, {}, {})
    protocol = f"SASL_{'SSL' if tls else 'PLAINTEXT'}" if sasl else "SSL"
    config: dict[str, object] = {}
    settings = {"security.protocol": protocol}
    name = f"listener.name.{LISTENER.lower()}"
    if tls:
        password = secrets.token_urlsafe(16)
        store, certificate = make_certificate(directory, "server", password)
        config |= {
            f"{name}.ssl.keystore.type": "PKCS12",
            f"{name}.ssl.keystore.location": store,
            f"{name}.ssl.keystore.password": password,
        }
        settings["ssl.ca.location"] = str(certificate)
    if sasl:
        password = secrets.token_urlsafe(16)
        config |= {
            f"{name}.sasl.enabled.mechanisms": "PLAIN",
            f"{name}.plain.sasl.jaas.config": f'{_PLAIN} required user_{_USER}="{password}";',
        }
        settings |= {"sasl.mechanism": "PLAIN", "sasl.username": _USER, "sasl.password": password}
    return Access(config, {LISTENER: protocol}, settings)


def make_certificate(
    directory: Path, name: str, password: str, *, of: str | None = None
) -> tuple[Path, Path]:
    """A keystore with a key and its own certificate for 127.0.0.1, and the certificate as PEM. of: whose
    it is, if not of one with the same name. Raises KafkaUnavailable."""
    store, certificate = directory / f"{name}.p12", directory / f"{name}.pem"
    common = ["-keystore", str(store), "-storepass", password, "-alias", of or name]
    for arguments in (
        ["-genkeypair", "-keyalg", "EC", "-storetype", "PKCS12", "-dname", f"CN={of or name}",
         "-ext", "san=ip:127.0.0.1", "-ext", "bc:c", "-validity", _VALID_DAYS],
        ["-exportcert", "-rfc", "-file", str(certificate)],
    ):  # fmt: skip  # command lines
        subprocess.run(
            [keytool(), *arguments, *common], check=True, capture_output=True, timeout=60
        )
    return store, certificate
