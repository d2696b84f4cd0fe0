"""What an archive demands of an object store, tried at the start. Pure, as protocol.py.

Providers that speak one protocol differ in what they do with a condition: some ignore it, and the
second of two writers overwrites the first. So each rule that the archive rests on is tried once,
on an object of its own, before anything of the log is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from aolog.errors import UsageError
from aolog.storage.objects.requests import (
    Absent,
    Answer,
    Delete,
    Deleted,
    Found,
    Head,
    List,
    Names,
    Put,
    Refused,
    Request,
    Stored,
    Tag,
    Unclear,
)

if TYPE_CHECKING:
    from collections.abc import Callable

PREFIX = "probe/"
_WRONG = Tag('"00000000000000000000000000000000"', "1")

# By the name of a step: what the store lacks if the step's answer is another one.
LACKS = {
    "create": "it refuses to create an object (If-None-Match: *)",
    "create_again": "it overwrites an object although it must only be created (If-None-Match: *)",
    "metadata": "it does not keep an object's metadata",
    "replace_other": "it replaces an object although its ETag differs (If-Match)",
    "replace": "it refuses to replace an object by its ETag (If-Match)",
    "list": "a new object is not in the list of names",
    "delete": "it does not delete an object",
    "deleted": "a deleted object is still there",
}
STEPS = tuple(LACKS)


@dataclass(frozen=True, slots=True)
class Probing:
    """A step of the probe. tag: of the object, once it exists. lacking: the step that failed; the
    object is deleted then, and the probe ends."""

    id: str  # random
    step: str = STEPS[0]
    tag: Tag | None = None
    lacking: str | None = None


@dataclass(frozen=True, slots=True)
class Probed:
    """The end. lacking: see LACKS; None if the store does all."""

    lacking: str | None


ProbeState: TypeAlias = Probing | Probed


def probe_request(state: Probing) -> Request:
    """What the step asks for."""
    name = PREFIX + state.id
    match state.step:
        case "create":
            return Put(name, b"first", state.id, "first")
        case "create_again":
            return Put(name, b"second", state.id, "second")
        case "metadata":
            return Head(name)
        case "replace_other":
            return Put(name, b"third", state.id, "third", _WRONG)
        case "replace":
            return Put(name, b"fourth", state.id, "fourth", state.tag)
        case "list":
            return List(PREFIX)
        case "delete":
            return Delete(name)
    return Head(name)


def probe_advance(state: Probing, answer: Answer) -> ProbeState:
    """The state after the answer. A PUT without an answer may have been carried out, and then its
    repetition is refused: the probe begins again, with another name."""
    if isinstance(answer, Unclear):
        puts = isinstance(probe_request(state), Put)
        return Probing(state.id + "+") if puts else state
    if state.lacking is not None:  # cleaned up
        return Probed(state.lacking)
    if not _is_right(state, answer):
        return Probing(state.id, "delete", None, state.step)
    if state.step == STEPS[-1]:
        return Probed(None)
    tag = answer.tag if isinstance(answer, Stored) else state.tag
    return Probing(state.id, STEPS[STEPS.index(state.step) + 1], tag)


def _is_right(state: Probing, answer: Answer) -> bool:
    match state.step, answer:
        case "create", Stored():
            return True
        case "create_again" | "replace_other", Refused():
            return True
        case "metadata", Found(tag=tag, write_id=write_id, sha256=sha256):
            same = (
                state.tag is not None and tag.etag == state.tag.etag
            )  # not every answer has a version
            return same and (write_id, sha256) == (state.id, "first")
        case "replace", Stored(tag=tag):
            return state.tag is not None and tag.etag != state.tag.etag
        case "list", Names(names=names):
            return PREFIX + state.id in names
        case "delete", Deleted():
            return True
        case "deleted", Absent():
            return True
    return False


def require(url: str, id_: str, ask: Callable[[Request], Answer]) -> None:
    """Tries the store. id_: random. ask: sends a request once; a PUT whose answer was lost is refused if it is
    repeated. Raises UsageError, which names what the store lacks; then nothing but the probe was written, and it
    is deleted."""
    state: ProbeState = Probing(id_)
    while isinstance(state, Probing):
        state = probe_advance(state, ask(probe_request(state)))
    if state.lacking is not None:
        raise UsageError(
            f"the store cannot hold a log: {LACKS[state.lacking]}",
            hint="use another store, or another version of this one; nothing was written",
            path=url,
        )
