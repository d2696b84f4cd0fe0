"""Records over HTTP into logs: a POST is answered when its records are durable.

Owns the bodies of requests (bodies), the logs of a directory, one for each topic (logs), and the
routes, with what they count (routes). Access and serving are operate's. Knows nothing of Kafka: a
bridge drains the logs. Read in this order: bodies, logs, routes.
"""
