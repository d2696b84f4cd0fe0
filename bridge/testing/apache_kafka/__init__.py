"""A real Apache Kafka on loopback, of one node or three: for `aolog-bridge cluster`, and for tests.

It needs Java 17 or later, and the jars of Kafka, which Maven fetches once. A node's data is a directory
that the caller names. It knows no log.

Read in this order: jars (Java, and what is fetched), ports, server (one node), cluster (three), access
(TLS and SASL).
"""
