"""Names of topics: which ones Kafka takes, and records may go to. Pure."""

from __future__ import annotations

import re

TOPIC_NAME = "[A-Za-z0-9._-]{1,249}"
"""Kafka's rule for names of topics, as a regular expression."""
_NO_TOPICS = {".", ".."}
_INTERNAL = {
    "__cluster_metadata", "__consumer_offsets", "__share_group_state", "__transaction_state",
}  # fmt: skip  # a table


def is_topic_name(name: str) -> bool:
    """Whether records may go to a topic of this name. Kafka reserves some."""
    return re.fullmatch(TOPIC_NAME, name) is not None and name not in _NO_TOPICS | _INTERNAL
