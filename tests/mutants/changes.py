"""What a mutant does to the original of its seam: each function here makes the replacement."""

import struct
import threading
from contextlib import suppress

import xxhash


def nothing(_=None):
    """The call does nothing."""
    return lambda *_, **__: None


def always(value):
    """The call returns this."""
    return lambda _: lambda *_, **__: value


def given(**fixed):
    """The call gets these keyword arguments, whatever the caller passes."""
    return lambda original: lambda *args, **known: original(*args, **known | fixed)


def returns(change):
    """The call's result is changed."""
    return lambda original: lambda *args, **known: change(original(*args, **known))


def not_at(*ends):
    """The file's call does nothing where its path ends so."""
    return lambda original: (
        lambda self, *args: None if self.path.endswith(ends) else original(self, *args)
    )


def inside(broken):
    """Two seams: the second is broken while the first runs."""

    def make(outer, inner):
        running, replaced = threading.local(), broken(inner)

        def outside(*args, **known):
            running.now = True
            try:
                return outer(*args, **known)
            finally:
                running.now = False

        def chosen(*args, **known):
            return (replaced if getattr(running, "now", False) else inner)(*args, **known)

        return outside, chosen

    return make


def forgiving(*names):
    """The call ignores these errors of ours."""

    def make(original):
        from aolog import errors

        def call(*args):
            with suppress(*(getattr(errors, name) for name in names)):
                original(*args)

        return call

    return make


# --- writing ---------------------------------------------------------------------------------


def once(_):
    """A short write is not continued."""
    return lambda self, parts, offset: self._system.pwritev(self.fd, [*map(bytes, parts)], offset)


def cut_short(original):
    """The last bytes of a write of several parts are missing."""

    def pwrite_all(self, parts, offset):
        data = b"".join(map(bytes, parts))
        original(self, [data[:-8] if len(parts) > 1 and len(data) > 100 else data], offset)

    return pwrite_all


def unless_it_exists(original):
    return lambda self, path, *mode: None if self.exists(path) else original(self, path, *mode)


def answering_while_another_works(original):
    busy = threading.Lock()

    def sync(self):
        if not busy.acquire(blocking=False):
            return self.end
        try:
            return original(self)
        finally:
            busy.release()

    return sync


def in_halves(original):
    """Two calls, each with half of the records."""

    def append(self, records):
        import numpy as np

        records = records if hasattr(records, "num_rows") else list(records)
        half = len(records) // 2
        halves = [part for part in (records[:half], records[half:]) if len(part)]
        return np.concatenate([original(self, part) for part in halves])

    return append


def last_slab(**fixed):
    """Recovery decides about a last slab that has these fields."""
    return lambda original: (
        lambda last, **known: original(last and last._replace(**fixed), **known | {"jump": int})
    )


def one_frame_more(decision):
    return decision._replace(cut_at=decision.cut_at - 8) if decision.cut_at else decision


def damage_is_a_tail(found):
    from aolog.log.walk import Damage, Tail

    return Tail(found.begin, found.end) if isinstance(found, Damage) else found


def tried_again(original):
    from aolog.errors import SyncFailed

    def datasync(self):
        try:
            original(self)
        except SyncFailed:
            original(self)

    return datasync


def full_disk(original):
    """A failed sync is reported as a full disk."""
    from aolog.errors import StorageFull, SyncFailed

    def datasync(self):
        try:
            original(self)
        except SyncFailed as error:
            raise StorageFull("sync: no space left", hint="free some", path=self.path) from error

    return datasync


def locking(original):
    """A reader takes the writer's lock for a moment."""

    def init(self, path, *args, **known):
        from aolog.log.lock import lock_log
        from aolog.storage.storage import Storage, absolute

        lock_log(absolute(path), Storage()).close()
        original(self, path, *args, **known)

    return init


def following_links(original):
    import os

    def opened(path, flags, *args, **known):
        return original(path, flags & ~os.O_NOFOLLOW, *args, **known)

    return staticmethod(opened)


# --- reading ---------------------------------------------------------------------------------


def headers_alone(*_):
    """Frames are taken as intact if their headers are. Two seams."""
    from aolog.format.frame import FRAME_HEADER_LEN, Frame, decode_header

    def frames(chunk, view, chunk_at, offset, salt, most=None):
        found, last = [], len(chunk) - FRAME_HEADER_LEN
        while 0 <= (at := offset - chunk_at) <= last and len(found) != most:
            header = decode_header(chunk, at, offset, salt)
            if header is None or at + header.frame_len > len(chunk):
                break
            begin = at + FRAME_HEADER_LEN
            body = view[begin : begin + header.body_len]
            found.append(Frame(offset, offset + header.frame_len, header, body))
            offset = found[-1].end
        return found

    return frames, lambda header, body: True


def unchecked_header(original):
    from aolog.format.frame import KIND_RECORDS, MAGIC, FrameHeader

    def decode(buffer, at, offset, salt):
        magic, *fields, _ = struct.unpack_from("<HBBIQqIIII", buffer, at)
        claimed = FrameHeader(*fields)
        right = original(buffer, at, offset, salt)
        return right or (claimed if magic == MAGIC and claimed.kind == KIND_RECORDS else None)

    return decode


def unchecked_cursor(original):
    hashed = 64  # bytes, followed by their hash
    return lambda copy: original(
        copy[:hashed] + struct.pack("<I", xxhash.xxh32_intdigest(copy[:hashed]))
    )


def longer_body(original):
    def decode(body, at, entries):
        longer = memoryview(bytes(body).ljust(1 << 20, b"\0"))
        return original(longer, at, min(entries, 1000))

    return decode


def one_less(found):
    if getattr(found, "records_lost", None):
        return found._replace(records_lost=found.records_lost - 1)
    return found


def without_torn_ends(original):
    def step(self):
        while getattr(found := original(self), "reason", "") == "torn":
            self.drop(1)
        return found

    return step


def to_the_first_copy(original):
    def pwrite_all(self, parts, offset):
        original(self, parts, 0 if self.path.endswith(".cursor") else offset)

    return pwrite_all


def growing(original):
    def pwrite_all(self, parts, offset):
        if self.path.endswith(".cursor"):
            original(self, [bytes(4096)], self.stat().size)
        original(self, parts, offset)

    return pwrite_all
