"""Kafka's rule for names of topics."""

from __future__ import annotations

import re
from functools import lru_cache

from aolog.write.validate import TOPIC_NAME

_NO_TOPICS = {".", ".."}
_INTERNAL = {
    "__cluster_metadata", "__consumer_offsets", "__share_group_state", "__transaction_state",
}  # fmt: skip  # a table


@lru_cache
def is_topic_name(name: str) -> bool:
    """Whether records may go to a topic of this name. Kafka reserves some."""
    return re.fullmatch(TOPIC_NAME, name) is not None and name not in _NO_TOPICS | _INTERNAL
