"""kafka-fast's configuration: what each key means, and the page's table says the same. (Keys that are
ignored or refused: test_json_config.py.)"""

import re
from pathlib import Path

import pytest

import aolog
from bridge.client.config import load
from bridge.client.properties import CONVERTED, IGNORED, REFUSED, RENAMED
from bridge.kafka.settings import check

PAGE = (Path(aolog.__file__).parent / "docs/how-to/clients.md").read_text(encoding="utf-8")

# A value of each key that kafka-fast takes, and what it means to librdkafka.
PRODUCER = {
    "bootstrap-brokers": ([{"host": "a", "port": 9092}, {"host": "b", "port": 9093}],
                          {"bootstrap.servers": "a:9092,b:9093"}),
    "batch-num-messages": (100, {"batch.num.messages": "100"}),
    "queue-buffering-max-ms": (1000, {"linger.ms": "1000"}),
    "batch-byte-limit": (10_485_760, {"batch.size": "10485760"}),
    "client-id": ("1", {"client.id": "1"}),
    "codec": (2, {"compression.type": "snappy"}),
    "acks": (1, {"acks": "1"}),
    "fetch-timeout": (30_000, {"socket.timeout.ms": "30000"}),
    "metadata-timeout": (10_000, {"socket.timeout.ms": "10000"}),
}  # fmt: skip  # a table
CONSUMER = {
    "max-wait-time": (1000, {"fetch.wait.max.ms": "1000"}),
    "min-bytes": (1, {"fetch.min.bytes": "1"}),
    "max-bytes": (52_428_800, {"fetch.max.bytes": "52428800"}),
    "offset-commit-freq": (5000, {"auto.commit.interval.ms": "5000"}),
    "use-earliest": (True, {"auto.offset.reset": "earliest"}),
    "consume-step": (100_000, {}),
}
KEYS = {key for key in [*RENAMED, *CONVERTED, *IGNORED, *REFUSED] if "." not in key}
ROWS = re.findall(r"^\| `:([\w-]+)` \| (.+?) \| (.+?) \|", PAGE, re.MULTILINE)
FOR_BRIDGE = {key: bridge for key, _, bridge in ROWS if "`-X " in bridge}


def config(side, **properties):
    base = {"bootstrap.servers": "a:1", "group.id": "g"}
    if {"bootstrap-brokers", ":bootstrap-brokers"} & properties.keys():
        del base["bootstrap.servers"]
    return {"Type": f"{side.capitalize()}Config", "Properties": {**base, **properties}}


@pytest.mark.parametrize("key", sorted(PRODUCER))
def test_a_key_of_the_producer_means_the_same(key):
    value, settings = PRODUCER[key]
    for spelling in (key, f":{key}"):
        assert (
            settings.items()
            <= load(config("producer", **{spelling: value}), "producer").settings.items()
        )


@pytest.mark.parametrize("key", sorted(CONSUMER))
def test_a_key_of_the_consumer_means_the_same(key):
    value, settings = CONSUMER[key]
    options = load(config("consumer", **{key: value}), "consumer")
    assert settings.items() <= options.settings.items()
    assert options.poll_records == (value if key == "consume-step" else 500)


@pytest.mark.parametrize("key", sorted(FOR_BRIDGE))
def test_a_setting_that_the_page_names_for_the_bridge_is_one(key):
    found = re.match(r"`-X ([\w.]+)=?(\w*)`", FOR_BRIDGE[key])
    check({found[1]: found[2] or PRODUCER[key][1][found[1]]})


def test_the_pages_table_has_every_key_and_what_the_code_makes_of_it():
    cells = {key: cell for key, cell, _ in ROWS}
    assert cells.keys() == KEYS | {"acks"}  # it has the same name in both
    for key, cell in cells.items():
        if key in REFUSED:
            assert cell.startswith("refused: "), key
        elif key in IGNORED:
            assert cell.startswith("ignored: "), key
        else:
            settings = (PRODUCER | CONSUMER)[key][1]
            assert cell == f"`{next(iter(settings), 'max.poll.records')}`", key
