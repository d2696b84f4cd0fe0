"""The bridge: drains logs to Kafka, in order, through outages, crashes and restarts.

    log ► read ► route ► lanes ► Kafka ► acknowledged ► cursor ► prune

`engine` decides and is pure; `run` reads, sends and commits as it says; `kafka` is the one
module that speaks to a cluster. See the README for what is guaranteed.
"""
