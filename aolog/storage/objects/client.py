"""The client of an object store: sends one request and turns what comes back into an answer.

The only module that imports obstore. obstore's own retries are off: it would repeat a conditional
PUT whose answer was lost, and report the refusal of the second attempt. `send` makes one attempt;
`ask` repeats a request that can be repeated, with a growing wait, until a deadline. Credentials are
found as each provider's own clients find them. No error shows a store's text, which may have parts of
them: only its status and code.
"""

from __future__ import annotations

import errno
import os
import random
import re
import time
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import from_url

from aolog.errors import Forked, PermissionDenied, StorageFailed, UsageError, warn
from aolog.storage.objects.requests import (
    Absent,
    Answer,
    Delete,
    Deleted,
    Found,
    Get,
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

    from aolog.format.frame import Buffer

# Metadata. Azure allows letters, digits and _ only, and S3 sends the names as parts of headers.
WRITE_ID, SHA256 = "aologwrite", "aologsha256"
DEADLINE_S = 120.0  # of one request with its repetitions
LATE_S = 3.0  # without a clear answer; then a warning says so
_WAIT_S_MIN, _WAIT_S_MAX = 0.1, 10.0
_TIMEOUT_S = 30  # of one attempt, without its body's transfer at 1 MB/s
_TRANSIENT = {408, 409, 425, 429}  # and 500 to 599
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([A-Za-z]{1,60})</Code>|\"code\":\s*\"?([A-Za-z]{1,60})")
_TRIED = re.compile(r"Error performing [A-Z]+ https?://(?:[^/\s@]*@)?([^/\s?#]+)")
_NO_BUCKET = {"NoSuchBucket", "ContainerNotFound"}
# Where a machine of a provider finds its credentials.
_METADATA = {"169.254.169.254", "169.254.170.2", "metadata", "metadata.google.internal"}

_T = TypeVar("_T")
_pid: int | None = None  # of the process that used obstore first: its threads do not survive a fork


class Client:
    """Requests to the objects below a URL. Thread-safe.

    requests, sent_bytes, received_bytes: counted over its life."""

    def __init__(self, url: str, *, deadline_s: float = DEADLINE_S) -> None:
        global _pid  # noqa: PLW0603 -- of the process, as obstore's threads are
        _pid = _pid or os.getpid()
        self.url = url
        self.deadline_s = deadline_s
        self.requests = self.sent_bytes = self.received_bytes = 0
        self._unclear_since: float | None = None
        self._warned = False
        options = {} if url.startswith("file:") else _options()
        try:
            self._store = from_url(url, **options)
        except (BaseError, ValueError) as error:
            if url.startswith("file:"):  # a directory that does not exist
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), url) from None
            raise UsageError(
                f"{url}: the client refuses it: {_first_line(error)}",
                hint="the URL and the provider's environment variables must name one store",
            ) from None

    def ask(self, request: Request) -> Answer:
        """The answer to a request that may be repeated. Raises StorageFailed at the deadline, and what
        `send` raises."""
        answer: Answer = self._repeated(partial(self.send, request))
        return answer

    def send(self, request: Request) -> Answer:
        """The answer to one attempt. Raises PermissionDenied, UsageError for no bucket and for what the
        store does not support, StorageFailed for other refusals, Forked."""
        return self._attempt(request, partial(self._carry_out, request))

    def entries(self, prefix: str) -> tuple[list[tuple[str, int, str]], list[str]]:
        """What is directly below a prefix: (name, size, ETag) of each object, and the names of folders.
        Raises as `ask`."""
        look = partial(obstore.list_with_delimiter, self._store, prefix or None)
        found: Any = self._repeated(partial(self._attempt, List(prefix), look))
        if isinstance(found, Absent):
            return [], []
        objects = [(_base(o["path"]), o["size"], _quoted(o["e_tag"])) for o in found["objects"]]
        return objects, [_base(name) for name in found["common_prefixes"]]

    def _repeated(self, attempt: Callable[[], Any]) -> Any:
        """The first clear answer, with a growing wait between attempts. Raises StorageFailed at the deadline."""
        began_s, wait_s = time.monotonic(), _WAIT_S_MIN
        while isinstance(answer := attempt(), Unclear):
            left_s = began_s + self.deadline_s - time.monotonic()
            if left_s <= 0:
                raise unreachable(self.url, answer.reason, self.deadline_s)
            time.sleep(min(left_s, wait_s * random.uniform(0.5, 1.0)))  # noqa: S311 -- spreads load
            wait_s = min(2 * wait_s, _WAIT_S_MAX)
        return answer

    def _attempt(self, request: Request, call: Callable[[], _T]) -> _T | Answer:
        """What the call returns, or the answer to its error."""
        if os.getpid() != _pid:
            raise Forked(
                "object stores were used before a fork",
                hint="start processes by spawn, or use them in the child only",
                path=self.url,
            )
        self.requests += 1
        begun_s = time.monotonic()
        try:
            answer: _T | Answer = call()
        except (BaseError, OSError, NotImplementedError) as error:
            answer = self._answer_to(error, request)
        self._note(answer, begun_s)
        return answer

    def _note(self, answer: object, begun_s: float) -> None:
        """Warns once of a store that has given no clear answer for some time."""
        if not isinstance(answer, Unclear):
            self._unclear_since, self._warned = None, False
            return
        self._unclear_since = self._unclear_since or begun_s
        if not self._warned and time.monotonic() - self._unclear_since >= LATE_S:
            self._warned = True
            warn(
                "%s: no clear answer from the store yet (%s); trying again", self.url, answer.reason
            )

    def _carry_out(self, request: Request) -> Answer:
        """Raises obstore's errors."""
        match request:
            case Get() | Head():
                return self._get(request)
            case Put():
                return self._put(request)
            case Delete(name=name):
                with suppress(FileNotFoundError):  # Google and Azure answer 404, as to a repetition
                    obstore.delete(self._store, name)
                return Deleted()
            case List(prefix=prefix):
                found = obstore.list(self._store, prefix or None, chunk_size=1000)
                return Names(tuple(sorted(meta["path"] for part in found for meta in part)))

    def _get(self, get: Get | Head) -> Answer:
        options: Any = {}
        if get.match is not None:
            options["if_match"] = get.match.etag
        if isinstance(get, Head):
            options["head"] = True
        elif get.span is not None:
            options["range"] = get.span
        result = obstore.get(self._store, get.name, options=options)
        meta, attributes = result.meta, result.attributes
        tag = Tag(meta["e_tag"] or "", meta["version"])
        if get.match is not None and tag.etag != get.match.etag:
            return Refused()  # some stores ignore If-Match here
        body: Buffer = b""
        if isinstance(get, Get):
            body = memoryview(result.bytes())
            self.received_bytes += len(body)
            begin, end = get.span or (0, meta["size"])
            if len(body) != max(0, min(end, meta["size"]) - begin):
                return Unclear("the body was cut")
        return Found(tag, meta["size"], attributes.get(WRITE_ID), attributes.get(SHA256), body)

    def _put(self, put: Put) -> Answer:
        content = put.content
        assert isinstance(content, bytes)
        self.sent_bytes += len(content)
        mode: Any = "create"
        if put.replaces is not None:
            mode = {"e_tag": put.replaces.etag}
            if put.replaces.version is not None:
                mode["version"] = put.replaces.version
        attributes = {WRITE_ID: put.write_id, SHA256: put.sha256}
        done = obstore.put(
            self._store,
            put.name,
            content,
            mode=mode,
            use_multipart=False,  # its parts are no conditional PUT
            attributes={name: value for name, value in attributes.items() if value},
        )
        return Stored(Tag(done["e_tag"] or "", done["version"]))

    def _answer_to(self, error: Exception, request: Request) -> Answer:
        text = str(error)
        status = int(found[1]) if (found := _STATUS.search(text)) else None
        code = (found[1] or found[2]) if (found := _CODE.search(text)) else None
        what = " ".join(str(part) for part in (status, code) if part) or _transport(text)
        if _asks_for_credentials(text):
            what = "no credentials: none in the environment, and none from the machine's service"
        if code in _NO_BUCKET:
            raise UsageError(
                "the bucket does not exist", hint="create it, or correct the URL", path=self.url
            ) from None
        match error:
            case FileNotFoundError():
                return Refused() if isinstance(request, Put) else Absent()
            case AlreadyExistsError() | PreconditionError():
                return Refused()
            case PermissionDeniedError() | UnauthenticatedError() | PermissionError():
                raise PermissionDenied(
                    f"the store refuses it ({what})",
                    hint="check the credentials, their rights on this prefix, and this host's clock",
                    path=f"{self.url}/{_name(request)}",
                ) from None
            case InvalidPathError():  # of file://: a name below it has a newline, for example
                raise UsageError(
                    "a name below it has characters that no store takes",
                    hint="rename it, or read the directory by its path, without file://",
                    path=self.url,
                ) from None
            case NotImplementedError():
                raise UsageError(
                    f"this kind of store cannot do it: {type(request).__name__.lower()} on a condition",
                    hint="use a bucket of S3, Google Cloud Storage or Azure",
                    path=self.url,
                ) from None
        if status is None or status in _TRANSIENT or status >= 500:
            return Unclear(what)
        raise StorageFailed(
            f"the store refuses it ({what})",
            hint="check the URL, the region and the credentials",
            path=f"{self.url}/{_name(request)}",
        ) from None


def unreachable(url: str, reason: str, deadline_s: float) -> StorageFailed:
    """The error at a deadline."""
    return StorageFailed(
        f"no clear answer from the store ({reason}) in {deadline_s:g} s",
        hint="check the endpoint, the region, the credentials and the network; nothing is lost: try again "
        "when it can be reached",
        path=url,
    )


def _options() -> dict[str, Any]:
    """For every store but a local one. An endpoint without TLS is allowed if the user names one."""
    endpoints = [
        os.environ.get(name, "")
        for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT",
                     "AZURE_STORAGE_ENDPOINT", "GOOGLE_BASE_URL")
    ]  # fmt: skip  # a list
    plain = any(each.startswith("http://") for each in endpoints)
    return {
        "retry_config": {"max_retries": 0},
        "client_options": {
            "timeout": timedelta(seconds=_TIMEOUT_S + 60),
            "connect_timeout": timedelta(seconds=10),
            "allow_http": plain,
        },
    }


def _transport(text: str) -> str:
    """Why no answer came, and whose. The text may name more than a user should see in a log."""
    tried = _TRIED.search(text)
    host = "" if tried is None else f" to {tried[1]}"
    for part, why in (("timed out", "time-out"), ("sending request", "no connection")):
        if part in text:
            return why + host
    return f"the connection{host} broke"


def _asks_for_credentials(text: str) -> bool:
    """Whether the machine's own service was asked, which some providers have, and not the store."""
    tried = _TRIED.search(text)
    return tried is not None and tried[1].partition(":")[0] in _METADATA


def _name(request: Request) -> str:
    return request.prefix if isinstance(request, List) else request.name


def _quoted(etag: str | None) -> str:
    """As the headers of answers have it: some lists, Azure's among them, leave the quotes out."""
    return f'"{etag}"' if etag and not etag.endswith('"') else etag or ""


def _base(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]
