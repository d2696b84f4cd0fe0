"""A token that is replaced in its file while the process runs."""

from __future__ import annotations

from pathlib import Path

from bridge.config.settings import CurrentToken, read_settings
from bridge.operate.access import Access

OLD, NEW = "0123456789abcdef", "fedcba9876543210"


def test_a_replaced_token_is_used_at_once_and_a_missing_or_short_one_never(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(OLD + "\n")
    settings, problems = read_settings({"token": {"file": str(file)}}, tmp_path)
    assert not problems
    access = Access("127.0.0.1:0", CurrentToken("token", settings["token"]))

    def accepted() -> list[bool]:
        return [access.may_act(f"Bearer {token}") for token in (OLD, NEW, "short")]

    assert accepted() == [True, False, False]
    file.write_text(NEW)
    assert accepted() == [False, True, False]
    for wrong in ("short", ""):
        file.write_text(wrong)
        assert accepted() == [False, True, False]
    file.unlink()
    assert accepted() == [False, True, False]
    file.write_text(OLD)
    assert accepted() == [True, False, False]
