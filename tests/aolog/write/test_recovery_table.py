"""Recovery's table: every combination of what can be found lands on exactly one row."""

from __future__ import annotations

from collections import Counter
from itertools import product

from aolog.write.recovery_cases import Case, Decision, LastSlab, decide

BASE = 1 << 20
END = 9000  # after the last intact frame
REACH = 1 << 33
BOOLEANS = (False, True)


def combinations():
    """All inputs: (last slab, cursors)."""
    yield None, []
    places = (BASE, BASE + END, BASE + END + 3, BASE + END + 64, BASE + REACH + 5)
    for flags in product(*[BOOLEANS] * 8):
        has_header, foreign, has_predecessor, sealed, blank, same_file, same_boot, unfinished = (
            flags
        )
        if has_header and foreign:
            continue
        for queuefka, tail in product(BOOLEANS, (0, 1, 17, 64)):
            for cursors in ([], *([place] for place in places), [places[0], places[3]]):
                yield (
                    LastSlab(
                        queuefka=queuefka,
                        base=BASE,
                        size=END + tail,
                        end_of_frames=END,
                        reach=REACH,
                        has_header=has_header,
                        foreign=foreign,
                        has_predecessor=has_predecessor,
                        sealed=sealed,
                        blank=blank,
                        same_file=same_file,
                        same_boot=same_boot,
                        unfinished=unfinished,
                    ),
                    cursors,
                )


COMBINATIONS = list(combinations())


def decided(last: LastSlab | None, cursors: list[int]) -> Decision:
    return decide(last, cursors=cursors)


# The table of FORMAT.md in other words: a condition a row, independent of the code's order.
def is_2(s: LastSlab) -> bool:
    return not s.queuefka and s.has_header


def is_lost(s: LastSlab) -> bool:
    return not s.queuefka and not s.has_header


def is_original(s: LastSlab, cursors: list[int]) -> bool:
    return s.same_file and all(cursor <= s.base + s.end_of_frames for cursor in cursors)


def tail(s: LastSlab) -> bool:
    return s.size > s.end_of_frames


ROWS = {
    Case.FRESH: lambda s, _: s is None,
    Case.SEALED: lambda s, c: s and is_2(s) and s.sealed and is_original(s, c) and not tail(s),
    Case.SEALED_TAIL: lambda s, c: s and is_2(s) and s.sealed and is_original(s, c) and tail(s),
    Case.UNSEALED: lambda s, _: s and is_2(s) and not s.sealed and not tail(s),
    Case.UNSEALED_BLANK: lambda s, _: s and is_2(s) and not s.sealed and tail(s) and s.blank,
    Case.UNSEALED_TORN: lambda s, _: s and is_2(s) and not s.sealed and tail(s) and not s.blank,
    Case.HEADER_LOST: lambda s, _: s and is_lost(s) and s.has_predecessor and not s.foreign,
    Case.ONLY_LOST: lambda s, _: s and is_lost(s) and not s.has_predecessor,
    Case.COPIED: lambda s, c: s and is_2(s) and s.sealed and not is_original(s, c),
    Case.FOREIGN: lambda s, _: s and is_lost(s) and s.has_predecessor and s.foreign,
    Case.QUEUEFKA: lambda s, _: s and s.queuefka and not tail(s),
    Case.QUEUEFKA_TORN: lambda s, _: s and s.queuefka and tail(s) and s.unfinished,
    Case.QUEUEFKA_BAD: lambda s, _: s and s.queuefka and tail(s) and not s.unfinished,
}

NEW_EPOCH = {
    Case.FRESH,
    Case.UNSEALED,
    Case.UNSEALED_BLANK,
    Case.UNSEALED_TORN,
    Case.HEADER_LOST,
    Case.COPIED,
    Case.FOREIGN,
}


def test_every_combination_lands_on_exactly_one_row_and_the_code_says_which():
    seen = Counter()
    for last, cursors in COMBINATIONS:
        rows = [case for case, holds in ROWS.items() if holds(last, cursors)]
        assert len(rows) == 1, (last, cursors, rows)
        assert decided(last, cursors).case is rows[0], (last, cursors)
        seen[rows[0]] += 1
    assert set(seen) == set(Case), "a row that nothing lands on"


def test_only_bytes_after_the_last_intact_frame_are_ever_cut():
    for last, cursors in COMBINATIONS:
        decision = decided(last, cursors)
        if last is None or last.size == last.end_of_frames:
            assert decision.cut_at is None
        else:
            assert decision.cut_at in {None, last.end_of_frames}


def test_what_is_cut_is_copied_aside_unless_it_is_zeros():
    for last, cursors in COMBINATIONS:
        decision = decided(last, cursors)
        if last is not None and decision.cut_at is not None:
            assert decision.aside == (last.queuefka or not last.blank)
        else:
            assert not decision.aside


def test_only_an_unclean_open_and_the_first_begin_an_epoch():
    for found in COMBINATIONS:
        decision = decided(*found)
        assert decision.new_epoch == (decision.case in NEW_EPOCH)


def test_an_epoch_begins_above_the_file_and_above_every_cursor():
    for last, cursors in COMBINATIONS:
        decision = decided(last, cursors)
        if last is not None and decision.new_epoch:
            assert decision.next_base is not None
            assert decision.next_base >= last.base + last.size
            assert decision.next_base >= max(cursors, default=0)


def test_an_epoch_begins_above_the_reach_unless_the_page_cache_is_the_same():
    untrusted = 0
    for last, cursors in COMBINATIONS:
        decision = decided(last, cursors)
        if last is None or not decision.new_epoch:
            continue
        trusted = (
            last.same_file
            and last.same_boot
            and decision.case in {Case.UNSEALED, Case.UNSEALED_BLANK, Case.UNSEALED_TORN}
        )
        if not trusted:
            untrusted += 1
            assert decision.next_base >= last.base + last.reach
        elif not cursors:
            assert decision.next_base < last.base + last.size + 8, "no hole without a reason"
    assert untrusted


def test_a_format_1_slab_that_is_torn_from_its_first_byte_is_emptied_and_used():
    last = LastSlab(BASE, size=5, end_of_frames=0, reach=0, queuefka=True, unfinished=True)
    assert decided(last, []) == Decision(Case.QUEUEFKA_TORN, 0, True, None, False)
