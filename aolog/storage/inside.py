"""A path inside a log: where it starts, and the names below that, none of which may be a link.

A log's own path is the user's and may lead through symbolic links. What is inside the log may have
been put there by anybody who can write to it. So storage opens the directory that a path starts
at, and each name below it relative to the descriptor of the one before, with O_NOFOLLOW: there is
no moment between a check and its use.

Storage takes these for whatever it opens, makes, renames or removes in a log, and mypy refuses a
plain string in their place. They are strings, for messages and for comparisons; what string
methods and f-strings make of them is plain again. Knows no system calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from aolog.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aolog.storage.files import Directory

__all__ = ["Inside", "beside"]


class Inside(str):
    """base: the path of a directory, or one that is open: then that one is meant, whatever its path
    leads to by now. names: below it. mode: of a file that the user named, if it is created; None:
    it is in a log, and gets what its directory has.

        Inside(log_path, "cursors", "c.cursor")
        directory / "aside" / "00000000000000000000.torn"
    """

    __slots__ = ("base", "mode", "names")

    base: str | Directory
    names: tuple[str, ...]
    mode: int | None

    def __new__(cls, base: str | Directory, *names: str, mode: int | None = None) -> Self:
        """Of one name or more."""
        assert names
        assert all(name and "/" not in name and name not in {".", ".."} for name in names), names
        above = base if isinstance(base, str) else base.path
        is_plain = above == "." and mode is not None
        text = "/".join(names if is_plain else (above.rstrip("/"), *names))
        self = super().__new__(cls, text)
        self.base, self.names, self.mode = base, names, mode
        return self

    @property
    def in_log(self) -> bool:
        """Whether it is in a log, which may be another user's."""
        return self.mode is None

    def __truediv__(self, name: str) -> Inside:
        """A name in this directory."""
        return Inside(self.base, *self.names, name, mode=self.mode)

    def __add__(self, suffix: str) -> Inside:
        """Beside this one, under a longer name."""
        *above, name = self.names
        return Inside(self.base, *above, name + suffix, mode=self.mode)

    def __reduce__(self) -> tuple[Callable[[str], str], tuple[str]]:
        """In another process it is a path for messages: descriptors stay here."""
        return str, (str(self),)


def beside(path: str, mode: int = 0o600) -> Inside:
    """A file that the user named, in a directory whose path may lead through links. mode: if it is
    created. Raises UsageError if it names none."""
    head, slash, name = path.rstrip("/").rpartition("/")
    if name in {"", ".", ".."}:
        raise UsageError(f"{path!r} names no file")
    return Inside(head or slash or ".", name, mode=mode)
