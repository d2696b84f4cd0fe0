"""Topics that a client copies to a log."""

import time

from aolog import Reader
from bridge.client import Producer
from tests.bridge.client.configurations import producer_config
from tests.waiting import SOON_S


def send(kafka, topic, values, partition=0):
    with Producer(producer_config(kafka, producer_type="async")) as producer:
        for value in values:
            producer.send(topic, value, partition=partition)


def values(log):
    with Reader(log) as reader:
        return [record.value for record in reader]


def run(tap, log, count):
    """Until the log has so many records, and nothing more comes."""
    until_s = time.monotonic() + SOON_S
    while (found := len(values(log)) if log.exists() else 0) < count:
        assert time.monotonic() < until_s, f"{found} of {count} records are in the log"
        tap.step(200)
    tap.step(200)


def named(word, count):
    return [b"%s %d" % (word, i) for i in range(count)]
