"""Makes the golden logs of version 3: `python -m tests.golden.compressed.make DIRECTORY`.

    DIRECTORY/CODEC/log/*.slab        a log whose frames are compressed
    DIRECTORY/CODEC/records.json      what a reader is to return

Clock, randomness, boot and inode are those of format2's golden log. What a codec makes of a body
differs from release to release of its library, so these bytes are not made anew by a test: they are
read.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

import aolog
from aolog.format.compression import CODECS
from tests.golden.format2.make import HEADERS, Clock, GoldenStorage, Recorder, as_json, fixed


def write(to: Recorder) -> None:
    """A frame of every kind and column, that shrink and that do not."""
    to.append(b"too short to compress")
    to.cut()
    to.append(b"a lone value, again and again. " * 20)
    to.cut()
    to.append(bytes(200_000))  # more than a thousandfold: zeros behind what the codec made
    to.cut()
    to.append_many([b"%05d" % (i * i) for i in range(100)])
    to.cut()
    to.append_many([b""] * 200)  # the frame is as long as its count
    to.cut()
    to.mark()
    for i in range(60):
        to.append(
            None if i % 9 == 4 else b'{"user": %d, "path": "/a/%d"}' % (i, i % 3),
            key=b"key %d" % (i % 5) if i % 2 else None,
            headers=HEADERS if i % 4 == 1 else (),
            timestamp=to.clock.us - i,
            topic=("audit", None, "größe")[i % 3],
        )
    to.cut()
    to.append_many([b"in the second slab, %d" % i for i in range(40)])
    to.cut()


def make(directory: Path) -> None:
    """Makes everything anew in an empty directory."""
    for codec in CODECS:
        clock = Clock()
        patches = fixed(clock)
        for patch in patches:
            patch.start()
        try:
            with tempfile.TemporaryDirectory() as scratch:
                with aolog.Writer(
                    f"{scratch}/log", compression=codec, slab_bytes=9 << 10, flush_seconds=None,
                    sync_seconds=3600.0, storage=GoldenStorage(),
                ) as log:  # fmt: skip  # a call's options
                    recorder = Recorder(log, clock)
                    write(recorder)
                shutil.copytree(f"{scratch}/log", directory / codec / "log")
        finally:
            for patch in patches:
                patch.stop()
        lines = ",\n ".join(json.dumps(as_json(r), ensure_ascii=False) for r in recorder.expected)
        (directory / codec / "records.json").write_text(f"[\n {lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
