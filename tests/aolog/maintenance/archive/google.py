"""Google Cloud Storage's XML interface on loopback, as far as the client uses it: generations as conditions."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.aolog.maintenance.archive.stores import BUCKET

TIME = "2026-01-01T00:00:00Z"


class Stored(NamedTuple):
    content: bytes
    generation: int
    metadata: dict[str, str]

    @property
    def headers(self) -> dict[str, str]:
        return {
            "ETag": f'"{hashlib.md5(self.content).hexdigest()}"',
            "x-goog-generation": str(self.generation),
            "Last-Modified": formatdate(0, usegmt=True),
            **self.metadata,
        }


class Google:
    """A store with one bucket. environment: the variables with which clients find it."""

    def __init__(self) -> None:
        self._objects: dict[str, Stored] = {}
        self._generation = 1_700_000_000_000_000
        self._lock = Lock()
        google = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                with google._lock:
                    status, headers, data = google.answer(self, body)
                self.send_response_only(status)
                length = headers.pop("Content-Length", str(len(data)))
                for name, value in {**headers, "Content-Length": length}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            do_GET = do_PUT = do_HEAD = do_DELETE = handle_one  # noqa: N815 -- http.server's names

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        Thread(target=self._server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{self._server.server_address[1]}"
        key = {"gcs_base_url": url, "disable_oauth": True, "client_email": "", "private_key": "",
               "private_key_id": ""}  # fmt: skip  # a table
        self.environment = {"GOOGLE_BASE_URL": url, "GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(key)}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, dict, bytes]:
        at = urlsplit(request.path)
        bucket, _, name = unquote(at.path).lstrip("/").partition("/")
        assert bucket == BUCKET
        if not name:
            return 200, {}, self._list(parse_qs(at.query)).encode()
        there = self._objects.get(name)
        if request.command == "PUT":
            return self._put(name, request.headers, body)
        if there is None:
            return 404, {}, b"<Error><Code>NoSuchKey</Code></Error>"
        if request.command == "DELETE":
            del self._objects[name]
            return 204, {}, b""
        if request.headers.get("If-Match") not in {None, there.headers["ETag"]}:
            return 412, {}, b""
        if request.command == "HEAD":
            return 200, {**there.headers, "Content-Length": str(len(there.content))}, b""
        if (wanted := request.headers.get("Range")) is None:
            return 200, there.headers, there.content
        begin, last = map(int, wanted.removeprefix("bytes=").split("-"))
        part = there.content[begin : last + 1]
        span = f"bytes {begin}-{begin + len(part) - 1}/{len(there.content)}"
        return 206, {**there.headers, "Content-Range": span}, part

    def _put(self, name: str, headers, body: bytes) -> tuple[int, dict, bytes]:
        there = self._objects.get(name)
        generation = 0 if there is None else there.generation
        if headers.get("x-goog-if-generation-match") not in {None, str(generation)}:
            return 412, {}, b""
        self._generation += 1
        metadata = {n: v for n, v in headers.items() if n.lower().startswith("x-goog-meta-")}
        self._objects[name] = Stored(body, self._generation, metadata)
        return 200, self._objects[name].headers, b""

    def _list(self, query: dict[str, list[str]]) -> str:
        prefix, delimiter = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
        parts, folders = [], set()
        for name, stored in sorted(self._objects.items()):
            if not name.startswith(prefix):
                continue
            below, found, _ = name.removeprefix(prefix).partition(delimiter or "\0")
            if found:
                folders.add(prefix + below + delimiter)
                continue
            size, etag = (
                len(stored.content),
                stored.headers["ETag"].strip('"'),
            )  # as Azure's lists have it
            parts.append(
                f"<Contents><Key>{escape(name)}</Key><LastModified>{TIME}</LastModified>"
                f"<ETag>{etag}</ETag><Size>{size}</Size></Contents>"
            )
        parts += [
            f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
            for folder in sorted(folders)
        ]
        return f"<ListBucketResult>{''.join(parts)}</ListBucketResult>"


@contextlib.contextmanager
def google() -> Iterator[dict[str, str]]:
    """Yields the variables with which clients find it. It has an empty bucket."""
    store = Google()
    try:
        yield store.environment
    finally:
        store.close()
