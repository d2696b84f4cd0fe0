"""hazdev-broker's three file clients: files to topics, and topics to files.

It owns the files and the log between them and Kafka. Files go to Kafka through the bridge.

Read in this order: file_config, file_system, intake (directory → log), log_tap (topics → log), file_sinks (log
→ files), file_clients (the three programs), command.
"""
