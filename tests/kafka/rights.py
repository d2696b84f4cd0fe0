"""A Kafka with authentication and ACLs: users can do only what was granted.

Tests speak to it as its owner over the plain listener, and what is tested as a user of SASL's, each
of whom has no right until `grant`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Self, TypeAlias

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported, not said so
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from bridge.testing.apache_kafka.jars import POM
from bridge.testing.apache_kafka.server import KafkaServer

__all__ = ["Right", "StrictKafka", "User"]

Right: TypeAlias = tuple[str, str, str]
"""Kind of resource, its name, and the right, as Kafka's documentation writes them."""

_PASSWORD: Final = "of-every-user"
_USERS: Final = 80  # a user each test: what one was granted another does not have
_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"


class StrictKafka:
    """A server with ACLs. A context manager. Raises as KafkaServer does."""

    def __init__(self, directory: Path, config: dict[str, object], pom: Path = POM) -> None:
        users = " ".join(f'user_user{n}="{_PASSWORD}"' for n in range(_USERS))
        self.server = KafkaServer(
            directory,
            {
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS",  # the plain listener's
                "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
                "listener.name.sasl.plain.sasl.jaas.config": f"{_PLAIN} required {users};",
                **config,
            },
            {"SASL": "SASL_PLAINTEXT"},
            pom=pom,
        )
        self._used = 0

    def user(self) -> User:
        """One that has no rights yet."""
        self._used += 1
        assert self._used < _USERS
        return User(self.server, f"user{self._used}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()


class User:
    """Of a StrictKafka."""

    def __init__(self, server: KafkaServer, name: str) -> None:
        self._server = server
        self._name = name

    @property
    def bootstrap_servers(self) -> str:
        """The listener with authentication."""
        return self._server.bootstrap_of("SASL")

    @property
    def settings(self) -> dict[str, str]:
        """For a client of its own."""
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": self._name,
            "sasl.password": _PASSWORD,
        }

    @property
    def arguments(self) -> list[str]:
        """The same, for the command line."""
        given = [f"{key}={value}" for key, value in self.settings.items()]
        return ["--bootstrap-servers", self.bootstrap_servers,
                *(word for pair in given for word in ("-X", pair))]  # fmt: skip  # pairs

    def grant(self, rights: Iterable[Right]) -> None:
        """In force on return. A name that ends with `*` is a prefix."""
        admin: Any = AdminClient({"bootstrap.servers": self._server.bootstrap_servers})
        bindings = [
            AclBinding(
                ResourceType[resource.upper().replace(" ", "_")],
                name.removesuffix("*"),
                ResourcePatternType.PREFIXED if name.endswith("*") else ResourcePatternType.LITERAL,
                f"User:{self._name}",
                "*",
                AclOperation["".join(f"_{c}" if c.isupper() else c for c in right)[1:].upper()],
                AclPermissionType.ALLOW,
            )
            for resource, name, right in rights
        ]
        if not bindings:
            return
        for future in admin.create_acls(bindings).values():
            future.result(30)
        anything = ResourceType.ANY, None, ResourcePatternType.ANY
        of_user = f"User:{self._name}", None, AclOperation.ANY, AclPermissionType.ANY
        granted = AclBindingFilter(*anything, *of_user)
        # The controller has answered; a node on a busy machine learns of it later.
        while not set(bindings) <= set(admin.describe_acls(granted).result(30)):
            time.sleep(0.05)
