"""A log cut into ranges at any addresses: all of them together say what one reader says."""

import random
from itertools import pairwise

import pytest

import aolog
from aolog.log.directory import Log
from aolog.read import seek
from aolog.read.batch import RecordFrame
from aolog.read.ranges import Range, read_range
from aolog.read.scan import Scan
from aolog.record import Gap
from aolog.storage.storage import Storage


def make_log(path, rng, *, format="aolog"):
    """Many small slabs, frames of one record and of hundreds, and unclean ends."""
    for _ in range(rng.randrange(1, 4)):
        size = rng.choice([9_000, 20_000, 60_000])
        with aolog.Writer(path, slab_bytes=size, sync="never", format=format) as log:
            for _ in range(rng.randrange(3, 25)):
                if rng.random() < 0.5:
                    log.append(rng.randbytes(rng.randrange(1, 200)))
                    log.flush()
                else:
                    log.append_many([rng.randbytes(rng.randrange(1, 60))] * rng.randrange(1, 300))


def damage(path, rng):
    slabs = sorted(path.glob("*.slab"))
    for _ in range(rng.randrange(5)):
        slab = rng.choice(slabs)
        if not slab.exists():
            continue
        data = bytearray(slab.read_bytes())
        what = rng.random()
        if what < 0.1 and len(slabs) > 2 and slab not in {slabs[0], slabs[-1]}:
            slab.unlink()
            continue
        if what < 0.25:  # a slab without a header, be it copies or all
            data[:8192] = bytes(8192)
            if rng.random() < 0.7:
                data[-24:] = bytes(24)
        else:
            at = rng.randrange(8192, max(8193, len(data)))
            size = rng.choice([1, 30, 3000])
            data[at : at + size] = rng.randbytes(len(data[at : at + size]))
        slab.write_bytes(data)


def whole(log):
    scan = Scan(log, seek.earliest(log))
    found = []
    while (each := scan.next()) is not None:
        found.append(each)
    end = scan.position.address
    scan.close()
    return found, end


def told(found):
    addresses = [r.address for f in found if isinstance(f, RecordFrame) for r in f.records()]
    return addresses, [gap for gap in found if isinstance(gap, Gap)]


@pytest.mark.parametrize("seed", range(15))
def test_ranges_cut_anywhere_say_together_what_one_reader_says(tmp_path, seed):
    rng = random.Random(seed)
    path = tmp_path / "log"
    make_log(path, rng, format="aolog" if seed % 5 else "queuefka")
    damage(path, rng)
    log = Log(str(path), Storage())
    if not log.bases:
        return
    all_of_it, end = whole(log)
    begin = log.bases[0]
    places = [f.address for f in all_of_it if isinstance(f, RecordFrame)]
    places += [p + rng.randrange(-9, 9) for p in places] + log.bases
    places += [at for gap in all_of_it if isinstance(gap, Gap) for at in (gap.begin, gap.end - 1)]
    for _ in range(12):
        chosen = rng.sample(places, min(len(places), rng.randrange(1, 12)))
        chosen += [rng.randrange(begin, end) for _ in range(rng.randrange(3))]
        cuts = sorted({begin, end, *(at for at in chosen if begin < at < end)})
        found = []
        for low, high in pairwise(cuts):
            mine = list(read_range(log, Range(low, high, begin, end)))
            assert all(
                low <= (f.address if isinstance(f, RecordFrame) else f.begin) < high for f in mine
            )
            found += mine
        assert told(found) == told(all_of_it)
    log.close()


def test_what_was_there_and_cannot_be_read_any_more_is_a_gap(tmp_path):
    log = aolog.Writer(tmp_path, batch_bytes=0)
    first, second = log.append(b"one"), log.append(b"two")
    end = log.flush()
    slab = next(tmp_path.glob("*.slab"))
    slab.write_bytes(slab.read_bytes()[: second + 8])
    with aolog.Reader(tmp_path) as reader:
        assert [record.address for record in reader] == [first]
        assert reader.gaps == [], "for who follows the log it may still come"
    cut = Log(str(tmp_path), Storage())
    found = list(read_range(cut, Range(0, end, 0, end)))
    assert list(read_range(cut, Range(end - 3, end, 0, end))) == [
        Gap(end - 3, end, "torn_or_corrupt", None)
    ]
    cut.close()
    assert found[1:] == [Gap(second, end, "torn_or_corrupt", None)]
    with pytest.raises(aolog.SlabLost):
        log.close()
