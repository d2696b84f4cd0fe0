"""The window begins small, grows each round trip that is short, and is halved where it is long."""

from __future__ import annotations

from bridge.deliver.at_least_once.window import AT_ONCE_S, BYTES_MIN, TARGET_S, Window

MAX = 24 << 20


def round_trips(window: Window, trips: int, wait_s: float, begin_s: float = 0.0) -> list[int]:
    """What it is after each: all that it lets be sent is acknowledged, in ten parts."""
    found = []
    for trip in range(trips):
        sent_s = begin_s + trip * wait_s
        whole = window.bytes
        for i in range(10):
            under_way = whole - whole // 10 * i
            window.acknowledged(
                whole // 10, under_way=under_way, sent_s=sent_s, now_s=sent_s + wait_s
            )
        found.append(window.bytes)
    return found


def test_it_doubles_each_short_round_trip_up_to_its_most() -> None:
    window = Window(MAX)
    assert window.bytes == BYTES_MIN
    grown = round_trips(window, 3, AT_ONCE_S)
    assert all(1.5 < two / one <= 2 for one, two in zip([BYTES_MIN, *grown], grown, strict=False))
    assert round_trips(window, 20, AT_ONCE_S)[-1] == MAX


def test_it_is_halved_once_in_a_long_round_trip_down_to_its_least() -> None:
    window = Window(MAX)
    window.bytes = MAX
    assert round_trips(window, 3, TARGET_S) == [MAX // 2, MAX // 4, MAX // 8]
    assert round_trips(window, 20, TARGET_S * 3, begin_s=10.0)[-1] == BYTES_MIN
