"""A real Apache Kafka on loopback, of one node or three: for `aolog-bridge cluster`, and for tests.

It needs Java 17 or later, and the jars of Kafka, which Maven fetches once. A node's data is a directory
that the caller names. It knows no log.

Read in this order: jars (Java, and what is fetched), ports, server (one node), cluster (three), access
(TLS and SASL).
"""

from bridge.testing.apache_kafka.access import LISTENER, Access, make_access, make_certificate
from bridge.testing.apache_kafka.cluster import KafkaCluster
from bridge.testing.apache_kafka.jars import POM, POM_3_9, KafkaUnavailable, jars, java
from bridge.testing.apache_kafka.ports import free_ports
from bridge.testing.apache_kafka.server import KafkaDied, KafkaServer, Node

__all__ = [
    "LISTENER",
    "POM",
    "POM_3_9",
    "Access",
    "KafkaCluster",
    "KafkaDied",
    "KafkaServer",
    "KafkaUnavailable",
    "Node",
    "free_ports",
    "jars",
    "java",
    "make_access",
    "make_certificate",
]
