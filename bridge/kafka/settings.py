"""Which of librdkafka's settings a user may give: checked before anything is connected."""

from __future__ import annotations

import re
from typing import Any

from confluent_kafka import KafkaException, Producer

from bridge.errors import WrongSetting
from bridge.kafka.client import AUTO_CREATE, DEFAULTS, FIXED, made, words
from bridge.kafka.known_settings import meant, unreadable_file
from bridge.kafka.read_back import ReadBack

_ALIASES = {  # the client's own
    "request.required.acks": "acks",
    "delivery.timeout.ms": "message.timeout.ms",
    "metadata.broker.list": "bootstrap.servers",
}
_NUMBERS = {  # the bridge reads these too, and the client takes 1e6 for 1, and 010 for 8
    "batch.size",
    "log_level",
    "message.max.bytes",
    "queue.buffering.max.kbytes",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "transaction.timeout.ms",
}
_UNKNOWN = re.compile(r'No such configuration property: "(.+)"')
_NUMBER = re.compile("[1-9][0-9]{0,8}|0")  # means the same to the client and to Python
_SAME = {"acks": {"all", "-1"}}  # other spellings of a value that the bridge sets
_NOT_HERE = ("test.mock.", "transactional.id", "bootstrap.servers")
_CALLBACKS = ("_cb", "on_delivery", "logger")
TRIED = "2.13 to 2.16"  # versions with which the tests pass


def check(settings: dict[str, Any]) -> None:
    """Raises WrongSetting for a setting that the client does not know, or that the bridge sets
    itself, and for a file that cannot be read. Connects to nothing."""
    for key, value in settings.items():
        name = _ALIASES.get(key, key)
        if name in FIXED and str(value).lower() not in _SAME.get(name, {str(FIXED[name]).lower()}):
            raise WrongSetting(
                f"{key} is set by the bridge, its guarantees rest on it",
                hint="use --create-topics" if name == AUTO_CREATE else "leave it out",
            )
        if name.startswith(_NOT_HERE) or (name.endswith(_CALLBACKS) and name != "oauth_cb"):
            raise WrongSetting(f"{key} cannot be set here", hint="leave it out")
        if name in _NUMBERS and not _NUMBER.fullmatch(str(value)):
            raise WrongSetting(
                f"{key} is {value!r}, which is not a plain number",
                hint="write up to nine digits, without a sign, a point or a leading zero",
            )
    if (wrong := unreadable_file(settings)) is not None:
        raise WrongSetting(wrong)
    try:
        made(Producer, {**DEFAULTS, **settings, **FIXED, "log_level": 0})
        ReadBack(dict(settings), bool).close()
    except (KafkaException, ValueError, TypeError, AttributeError) as error:
        refused = words(error)
    else:
        return
    unknown = _UNKNOWN.search(refused)
    name = "" if unknown is None else unknown[1]
    # librdkafka calls `enable.gapless.guarantee` experimental, so a later version may not have it.
    hint = f"the bridge needs it: install confluent-kafka {TRIED}" if name in FIXED else meant(name)
    raise WrongSetting(f"the Kafka client refuses a setting: {refused}", hint=hint or None)
