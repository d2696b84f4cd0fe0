"""What a user configures: models with types and bounds, files, secrets, routing, options.

Read in this order: names, settings (of the Kafka client, and where secrets come from), routing (where a
record goes), transform, models, files, options (what a forwarder is made of). Nothing here connects to anything.
"""
