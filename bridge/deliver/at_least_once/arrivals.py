"""Reading back: what arrived in the destination before a crash, so that it is not sent again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from bridge.kafka.client import NoAnswer, Refused
from bridge.kafka.lane import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.deliver.at_least_once.recognise import Recogniser
    from bridge.deliver.checkpoints import Checkpoint
    from bridge.kafka.lane import LaneKey
    from bridge.kafka.read_back import ReadBack

__all__ = ["Arrivals", "forbidden", "read_back", "silence"]

SETTLE_S = 0.25  # after an unclean stop: a predecessor's last request may still be landing
SETTLE_MAX_S = 5.0


class Arrivals(NamedTuple):
    """held: the last address that each lane holds. silent: lanes whose leader is away, or does
    not answer, or that we may not read, and why; nothing is known of them."""

    held: dict[LaneKey, int]
    silent: dict[LaneKey, Refusal]


def silence(reason: object) -> Refusal:
    """Of a partition that does not answer."""
    return Refusal(str(reason), "LEADER_NOT_AVAILABLE", passing=True)


def forbidden(refused: Refused) -> Refusal:
    """Of the partitions of a topic that we may not read."""
    return Refusal(str(refused), refused.code)


def read_back(
    reader: ReadBack,
    lanes: dict[LaneKey, Checkpoint],
    recogniser: Recogniser,
    *,
    clean: bool,
    distrusts: Callable[[LaneKey], bool],
    answer_s: float | None = None,
) -> Arrivals:
    """What each lane holds of the recogniser's log. The notes move on.

    clean: nothing was in flight when the predecessor stopped; otherwise it waits until that
    one's last request has landed. Partitions that are gone hold nothing. answer_s: how long each
    question may take. Raises NotReachable where the cluster is, or it is told to stop.
    """
    leaders = {topic: reader.leaders(topic) for topic in {key[0] for key in lanes}}
    lanes = {
        key: note
        for key, note in lanes.items()
        if key[1] in leaders[key[0]] and not distrusts(key)
    }  # fmt: skip  # one condition a line
    held = {key: note.address for key, note in lanes.items()}
    seen: dict[LaneKey, int] = {}
    silent: dict[LaneKey, Refusal] = {}
    unreadable: dict[str, Refusal] = {}
    away = {-1: silence("no broker leads it")}  # those that did not answer once are not asked again
    settle_until_s = time.monotonic() + SETTLE_MAX_S
    while True:
        moved = False
        for key, note in lanes.items():
            leader = leaders[key[0]][key[1]]
            if (why := unreadable.get(key[0]) or away.get(leader)) is not None:
                silent[key] = why
                continue
            try:
                first, end = reader.ends(key, answer_s)
                if end == seen.get(key):
                    continue
                begin = max(min(note.offset, end), first)  # beyond the end: the topic is a new one
                claims = recogniser.claims()
                own = reader.last_own(key, claims, begin, end) if begin < end else None
            except NoAnswer as error:
                away[leader] = silent[key] = silence(error)
                continue
            except Refused as error:
                unreadable[key[0]] = silent[key] = forbidden(error)
                continue
            seen[key], moved = end, True
            held[key] = max(held[key], -1 if own is None else own)
            note.offset, note.address = max(begin, end - 1), held[key]
        if clean or not moved or time.monotonic() > settle_until_s:
            break
        time.sleep(SETTLE_S)
    return Arrivals({key: held[key] for key in lanes if key not in silent}, silent)
