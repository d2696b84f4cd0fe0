"""The asyncio clients on the embedded broker."""

import asyncio
import base64

import pytest

from bridge.client import AsyncConsumer, AsyncProducer
from bridge.client.errors import KeyRefused, MissingTopic, SendFailed
from tests.bridge.brokers import NOWHERE
from tests.bridge.client.configurations import (
    SHORT_SESSION,
    consumer_config,
    new_topic,
    producer_config,
)


@pytest.fixture
def topic(cluster):
    return new_topic(cluster, 2)


def test_messages_are_sent_side_by_side_and_received_without_heartbeats(cluster, topic):
    beats = []

    async def run():
        config = producer_config(cluster, top={"HeartbeatInterval": 0.1})
        async with AsyncProducer(config) as producer:
            sends = [producer.send(topic, b"%d" % i, key="k", partition=1) for i in range(50)]
            offsets = [place.offset for place in await asyncio.gather(*sends)]
            assert offsets == sorted(set(offsets))  # heartbeats may be between them
            await producer.send_string(topic, "grün", partition=1)
            assert (await producer.send(topic, None, "k", partition=1)).offset > offsets[-1] + 1
            consumer = AsyncConsumer(consumer_config(cluster, topic), on_heartbeat=beats.append)
            async with consumer:
                await consumer.subscribe([topic])
                found = []
                while len(found) < 52 or not beats:
                    found += await consumer.poll_string(200)
        assert found == [*map(str, range(50)), "grün", ""]
        async with AsyncConsumer(consumer_config(cluster, topic)) as again:
            await again.subscribe(topic)
            assert await again.poll(1500) == []

    asyncio.run(run())


def test_notices_about_the_configuration_are_logged(cluster, caplog):
    async def run():
        async with AsyncProducer(producer_config(cluster, retries=0)) as producer:
            assert caplog.messages == producer.notices

    asyncio.run(run())
    assert "retries turned idempotence off" in caplog.messages[0]


def test_an_outage_writes_nothing_to_standard_error(cluster, topic, capfd):
    config = producer_config(cluster, bootstrap_servers=NOWHERE, delivery_timeout_ms=1_500)

    async def run():
        async with AsyncProducer(config) as producer:
            with pytest.raises(SendFailed):
                await producer.send(topic, b"x")

    asyncio.run(run())
    assert capfd.readouterr().err == ""


def test_a_send_waits_for_room_and_a_cancelled_one_fails_nothing(cluster, topic):
    config = producer_config(cluster, queue_buffering_max_messages=2)

    async def run():
        async with AsyncProducer(config) as producer:
            sent = await asyncio.gather(
                *(producer.send(topic, b"x", partition=0) for _ in range(9))
            )
        assert [place.offset for place in sent] == list(range(9))
        nowhere = producer_config(cluster, bootstrap_servers=NOWHERE, delivery_timeout_ms=1_000)
        async with AsyncProducer(nowhere) as producer:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(producer.send(topic, b"x"), 0.1)

    asyncio.run(run())


def test_iteration_and_commit(cluster, topic):
    async def run():
        async with AsyncProducer(producer_config(cluster)) as producer:
            for i in range(2):
                await producer.send(topic, b"%d" % i, partition=0)
        more = {"enable_auto_commit": "false", "max_poll_records": 1, **SHORT_SESSION}
        config = consumer_config(cluster, topic, **more)
        for expected in (b"0", b"1"):
            async with AsyncConsumer(config) as consumer:
                await consumer.subscribe(topic)
                async for record in consumer:
                    assert record.value == expected
                    break
                await consumer.commit()

    asyncio.run(run())


def test_a_producer_signs_and_a_consumer_verifies(cluster, topic, tmp_path):
    secret = base64.b64encode(b"a shared secret of many bytes").decode()
    (tmp_path / "keys").write_text(f"one hmac-sha256 {secret}\n", encoding="utf-8")
    signing = {"Signing": {"KeyFile": str(tmp_path / "keys")}}

    async def run():
        async with AsyncProducer(producer_config(cluster, top=signing)) as producer:
            sent = await producer.send(topic, b"x", partition=1)
            assert (sent.done, sent.topic, sent.partition, sent.offset) == (True, topic, 1, 0)
        async with AsyncConsumer(consumer_config(cluster, topic, top=signing)) as consumer:
            await consumer.subscribe(topic)
            assert await consumer.poll(-1) == [b"x"]

    asyncio.run(run())


def test_errors_are_those_of_the_other_clients(cluster, topic):
    async def run():
        async with AsyncProducer(producer_config(cluster)) as producer:
            with pytest.raises(SendFailed):
                await producer.send(topic, b"x", partition=99)
            with pytest.raises(MissingTopic):
                await producer.send("", b"x")
        async with AsyncProducer(producer_config(cluster, buffer_memory=32 << 10)) as producer:
            with pytest.raises(SendFailed, match=r"MSG_SIZE_TOO_LARGE: .*max.kbytes=32"):
                await producer.send(topic, b"x" * 33_000)
        with pytest.raises(KeyRefused, match="Topics"):
            AsyncProducer(producer_config(cluster, top={"Topics": {topic: {}}}))
        async with AsyncConsumer(consumer_config(cluster, "g")) as consumer:
            with pytest.raises(MissingTopic):
                await consumer.poll(0)

    asyncio.run(run())
