"""Kafka to logs: an archive that holds each record of its topics once. The logs themselves say how far
they got; the group's committed offsets are for display only.

Read in this order: origin (which Kafka record a log's record is), positions (how far one log got),
frames (messages as frames), pull_options and topics (what a pull is of), archive (several logs that share
topics, and whose turn it is), beginnings (where a partition begins), units (ranges of offsets, and whose
turn it is), puller (the loop), partition_work and unit_work (what one turn does), `commands/`. The room asks
`bridge.kafka` for everything of the cluster.
"""
