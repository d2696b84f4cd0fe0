"""What only tests do to a running Kafka."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient

from bridge.testing.apache_kafka.server import KafkaServer
from tests.waiting import wait_until

__all__ = ["delete_topic", "restore"]


def delete_topic(kafka: KafkaServer, name: str) -> None:
    """On return the server takes no more messages for it. Raises KafkaException, also where there is no
    such topic."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    admin.delete_topics([name], operation_timeout=30)[name].result(timeout=30)
    # A deleted partition's directory gets another name.
    wait_until(lambda: all(each.name.rpartition("-")[0] != name for each in kafka.data.iterdir()))


def restore(kafka: KafkaServer) -> None:
    """Whatever a test has done to the server: up, not paused, ready. Raises KafkaDied."""
    kafka.resume()
    if not kafka.is_alive():
        kafka.kill()  # forgets one that ended by itself
        kafka.start()
