"""Gaps summed up: the words and the fields of the error that a command ends with."""

from __future__ import annotations

import pytest

from aolog.errors import GapFound
from aolog.record import Gap, Losses


def error_of(*gaps: Gap) -> GapFound:
    losses = Losses()
    for gap in gaps:
        losses.add(gap)
    with pytest.raises(GapFound) as caught:
        losses.check("LOG", "read")
    return caught.value


@pytest.mark.parametrize(
    ("gaps", "said", "lost"),
    [
        ([Gap(0, 8, "corrupt", 1)], "1 gap met (1 corrupt): 1 record lost", 1),
        ([Gap(0, 8, "torn", 0)], "1 gap met (1 torn): 0 records lost", 0),
        (
            [Gap(0, 8, "torn_or_corrupt", None)],
            "1 gap met (1 torn_or_corrupt): an unknown number in 1 of them",
            None,
        ),
        (
            [Gap(0, 8, "pruned", 2000), Gap(9, 16, "corrupt", None), Gap(16, 32, "corrupt", 5)],
            "3 gaps met (2 corrupt, 1 pruned): 2,005 records lost and an unknown number in 1 of them",
            None,
        ),
    ],
)
def test_every_gap_counts_with_its_reason_and_an_unknown_number_is_never_reported_as_known(
    gaps: list[Gap], said: str, lost: int | None
):
    error = error_of(*gaps)
    assert (error.code, error.exit_status) == ("gap", 3)
    assert error.reason == said
    assert error.details == {"path": "LOG", "gaps": len(gaps), "records_lost": lost}
