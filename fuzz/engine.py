"""Coverage-guided fuzzing of the target `frame` with atheris, where it installs.

libFuzzer makes bytes, which are the content of a slab. Half of them get right hashes along the chain, so
that the code after the hash checks is reached. The log's modules are instrumented when they are imported,
so nothing here imports them before.
"""

from __future__ import annotations

import os
import random
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

__all__ = ["run_atheris"]


def run_atheris(seed: int, seconds: float, corpus: Path) -> None:
    """Runs for so long and ends the process: with 0, or with libFuzzer's status at the first
    failure, which is saved. Raises ModuleNotFoundError without atheris."""
    import atheris

    with atheris.instrument_imports(include=["aolog"]):
        from fuzz.campaign import save
        from fuzz.disk import Disk
        from fuzz.layout import DATA_BEGIN
        from fuzz.shapes import quiet
        from fuzz.targets.frame import FrameTarget, build, reseal_chain

    quiet()
    disk = Disk()
    target = FrameTarget(disk)
    target.measures = False  # libFuzzer bounds memory itself

    def one(data: bytes) -> None:
        content = reseal_chain(data[1:]) if data[:1] and data[0] % 2 else data[1:]
        case: dict[str, Any] = {"format": 2, "steps": [["insert", DATA_BEGIN, content.hex()]]}
        try:
            target.run(case)
        except Exception as error:
            at = save(corpus, "frame", case)
            print(f"\n{type(error).__name__}: {error}\n  python -m fuzz frame --input {at}")
            raise

    seeds = disk.root / "seeds"
    seeds.mkdir()
    for k in range(64):  # whole frames to begin with
        drawn = target.draw(random.Random(k))
        (seeds / str(k)).write_bytes(bytes([k % 2]) + build(drawn["steps"]))
    libfuzzer = [str(seeds), "-max_len=4096", f"-seed={seed % (1 << 32) or 1}"]
    libfuzzer += [f"-max_total_time={seconds:.0f}"]
    libfuzzer += [f"-artifact_prefix={disk.root}/", "-rss_limit_mb=2048", "-timeout=10"]
    atheris.Setup([sys.argv[0], *libfuzzer], one)
    child = os.fork()
    if child == 0:
        atheris.Fuzz()  # ends its process itself, and leaves nothing to clean up with
    _, status = os.waitpid(child, 0)
    disk.close()
    sys.exit(os.waitstatus_to_exitcode(status))
