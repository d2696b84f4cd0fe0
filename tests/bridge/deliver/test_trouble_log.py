"""What is logged while a delivery does not go on."""

from __future__ import annotations

import pytest

from bridge.deliver.trouble_log import TroubleLog


def test_a_cause_is_logged_once_a_minute_whatever_its_numbers_and_its_end_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    trouble = TroubleLog()
    for second in range(150):
        trouble.say(f"refused (after {second}ms in state AUTH_REQ)", float(second))
        if second % 2:
            trouble.say("no answer", float(second))
    said = [record.message for record in caplog.records]
    assert [line.partition(" (")[0] for line in said] == [
        "connecting anew: refused", "connecting anew: no answer",
    ] * 3  # fmt: skip  # pairs
    trouble.over()
    trouble.over()
    assert [record.message for record in caplog.records[6:]] == ["connected again"]
    trouble.say("no answer", 150.0)
    assert caplog.records[-1].message == "connecting anew: no answer"
