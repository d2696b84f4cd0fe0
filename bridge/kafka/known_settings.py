"""What the bridge knows of the Kafka client's settings: which name files, and what a misspelt name means. The client
reads these files when it connects anew. It alone decides which settings it takes."""

from __future__ import annotations

import difflib
import errno
import os
import re
import stat
from collections.abc import Mapping
from typing import Any

_NAMES_A_FILE = re.compile(r"\.location$|\.keytab$|^sasl\.oauthbearer\.assertion\..*\.file$")
NO_FILES = {"", "probe"}  # the client looks for its authorities where systems have them
_NEAR = 0.75  # for difflib: a letter or two are wrong
# Names that people write. The client has more, and does not list them.
_NAMES = """
acks allow.auto.create.topics api.version.request auto.commit.interval.ms auto.offset.reset batch.num.messages
batch.size bootstrap.servers broker.address.family check.crcs client.dns.lookup client.id client.rack
compression.codec compression.level compression.type connections.max.idle.ms debug delivery.timeout.ms
enable.auto.commit enable.auto.offset.store enable.idempotence enable.partition.eof
enable.ssl.certificate.verification fetch.max.bytes fetch.message.max.bytes fetch.min.bytes fetch.wait.max.ms
group.id group.instance.id group.protocol heartbeat.interval.ms isolation.level linger.ms log_level
max.in.flight max.in.flight.requests.per.connection max.partition.fetch.bytes max.poll.interval.ms
message.max.bytes message.send.max.retries message.timeout.ms metadata.broker.list metadata.max.age.ms
partition.assignment.strategy partitioner queue.buffering.max.kbytes queue.buffering.max.messages
queue.buffering.max.ms queued.max.messages.kbytes queued.min.messages receive.message.max.bytes
reconnect.backoff.max.ms reconnect.backoff.ms request.required.acks request.timeout.ms retries
retry.backoff.max.ms retry.backoff.ms sasl.kerberos.keytab sasl.kerberos.principal sasl.kerberos.service.name
sasl.mechanism sasl.mechanisms sasl.oauthbearer.client.id sasl.oauthbearer.client.secret
sasl.oauthbearer.config sasl.oauthbearer.method sasl.oauthbearer.scope sasl.oauthbearer.token.endpoint.url
sasl.password sasl.username security.protocol session.timeout.ms socket.connection.setup.timeout.ms
socket.keepalive.enable socket.nagle.disable socket.receive.buffer.bytes socket.send.buffer.bytes
socket.timeout.ms ssl.ca.location ssl.ca.pem ssl.certificate.location ssl.certificate.pem ssl.cipher.suites
ssl.endpoint.identification.algorithm ssl.key.location ssl.key.password ssl.key.pem ssl.keystore.location
ssl.keystore.password statistics.interval.ms sticky.partitioning.linger.ms
topic.metadata.refresh.interval.ms transaction.timeout.ms transactional.id
""".split()  # noqa: SIM905 -- ninety lines of a list tell no more


def names_a_file(key: str) -> bool:
    """Whether the value of this setting is the path of a file or directory, or one of NO_FILES."""
    return _NAMES_A_FILE.search(key) is not None


def unreadable_file(settings: Mapping[str, Any]) -> str | None:
    """What is wrong with the first file that these settings name and that cannot be read; None if all
    can be. The client's own words name neither the file nor the reason."""
    for key, path in settings.items():
        if not names_a_file(key) or not isinstance(path, str) or path in NO_FILES:
            continue
        try:
            opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # it may be a FIFO
        except OSError as error:
            reason = error.strerror
        else:
            is_directory = stat.S_ISDIR(os.fstat(opened).st_mode)
            os.close(opened)
            if not is_directory or key.endswith("ca.location"):
                continue
            reason = os.strerror(errno.EISDIR)
        return f"{key} names {path}, which cannot be read: {reason}"
    return None


def meant(name: str) -> str:
    """The begin of a sentence that guesses, such as `did you mean 'group.id'?`; "" without a guess."""
    near = difflib.get_close_matches(name, _NAMES, n=1, cutoff=_NEAR)
    return f"did you mean {near[0]!r}?" if near else ""
