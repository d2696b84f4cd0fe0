"""The names by which tests found the server before it moved. Use bridge.testing.apache_kafka."""

from bridge.testing.apache_kafka import (
    POM,
    POM_3_9,
    KafkaDied,
    KafkaServer,
    KafkaUnavailable,
    Node,
    free_ports,
    jars,
    java,
)

__all__ = ["POM", "POM_3_9", "KafkaDied", "KafkaServer", "KafkaUnavailable", "Node", "free_ports",
           "jars", "java"]  # fmt: skip  # a list
