"""Fork: what a child inherits is its parent's, and says so."""

from __future__ import annotations

import pytest

import aolog
from tests.aolog.conftest import Child, assert_clean, read_all, values

# Each runs in a process of its own: a fork of pytest would inherit far more than a log.
PRELUDE = """
import os, sys, threading, time, traceback, aolog
path = sys.argv[1]

def in_child(call):
    pid = os.fork()
    if pid == 0:
        try:
            call()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert status == 0, status

def raises(error, call):
    try:
        call()
    except error:
        return
    raise AssertionError(f"{call} did not raise {error}")
"""


def run(code: str, path: str) -> None:
    with Child(PRELUDE + code, path) as child:
        _, errors = child.wait()
        assert "Traceback" not in errors, errors


def test_every_call_in_the_child_is_refused_and_changes_nothing(log_path: str) -> None:
    run(
        """
w = aolog.Writer(path, flush_seconds=None, sync="never")
w.append(b"in memory")

def child():
    for call in (lambda: w.append(b"no"), lambda: w.append_many([b"no"]), w.flush, w.sync):
        raises(aolog.Forked, call)
    w.close()
    w.close()

before = {name: open(f"{path}/{name}", "rb").read() for name in os.listdir(path)}
in_child(child)
assert before == {name: open(f"{path}/{name}", "rb").read() for name in os.listdir(path)}
w.append(b"parent goes on")
w.close()
""",
        log_path,
    )
    assert values(log_path) == [b"in memory", b"parent goes on"]
    assert_clean(log_path)


def test_the_lock_goes_with_the_parent_though_children_live(log_path: str) -> None:
    code = """
w = aolog.Writer(path, flush_seconds=None)
w.append(b"a")
w.flush()
pid = os.fork()
if pid == 0:
    print("child", os.getpid(), flush=True)
    sys.stdin.readline()
    os._exit(0)
sys.stdin.readline()
"""
    with Child(PRELUDE + code, log_path) as child:
        assert child.line().startswith("child")
        with pytest.raises(aolog.LogLocked):
            aolog.Writer(log_path)
        child.process.kill()
        child.process.wait()
        with aolog.Writer(log_path) as writer:  # the grandchild holds nothing
            assert writer.opening.case == "unsealed"
        child.say("end")


def test_readers_and_cursors_are_the_parents_too(log_path: str) -> None:
    with aolog.Writer(log_path) as writer:
        writer.append_many([b"a", b"b", b"c", b"d"])
    run(
        """
r = aolog.Reader(path, cursor="c")
f = aolog.Reader(path)
next(f.follow(0.0))
assert r.read().value == b"a"
r.commit()

def child():
    for call in (r.read, r.commit, r.read_batch, r.lag, f.read, lambda: r.seek("latest")):
        raises(aolog.Forked, call)
    r.close()
    raises(aolog.CursorLocked, lambda: aolog.Reader(path, cursor="c"))
    with aolog.Reader(path) as mine:
        assert mine.read().value == b"a"

in_child(child)
assert r.read().value == b"b"
assert f.read().value == b"b"
r.commit()
raises(aolog.CursorLocked, lambda: aolog.Reader(path, cursor="c"))
r.close()
""",
        log_path,
    )
    assert values(log_path, cursor="c") == [b"c", b"d"]


def test_a_fork_while_threads_append_and_sync_blocks_no_one(log_path: str) -> None:
    run(
        """
w = aolog.Writer(path, slab_bytes=20_000, flush_seconds=0.001, sync_seconds=0.001)
stop = False

def work(which):
    i = 0
    while not stop:
        w.append(b"%d %d" % (which, i) + bytes(100))
        i += 1
        if i % 10 == 0:
            w.sync()
    counts[which] = i

counts = {}
threads = [threading.Thread(target=work, args=(which,)) for which in range(3)]
for t in threads:
    t.start()

def child():
    raises(aolog.Forked, lambda: w.append(b"no"))
    raises(aolog.Forked, w.sync)
    w.close()

for _ in range(30):
    in_child(child)
    time.sleep(0.005)
stop = True
for t in threads:
    t.join()
w.close()
found = [r.value for r in aolog.Reader(path)]
assert len(found) == sum(counts.values()), (len(found), counts)
""",
        log_path,
    )
    assert_clean(log_path)
    assert len(read_all(log_path)) > 0


def test_a_child_and_other_threads_open_logs_while_a_thread_looks_for_a_format(
    log_path: str,
) -> None:
    run(
        """
from aolog.log import directory
from aolog.log.directory import Log
from aolog.storage.storage import Storage
with aolog.Writer(path) as w:
    w.append(b"x")

find_format, inside, go = directory.find_format, threading.Event(), threading.Event()

def slow(log):  # as of a store that does not answer
    inside.set()
    go.wait()
    return find_format(log)

def look():
    assert Log(path, Storage()).has_headers

directory.find_format = slow
slowly = threading.Thread(target=look, daemon=True)
slowly.start()
assert inside.wait(30)
directory.find_format = find_format
beside = threading.Thread(target=look, daemon=True)
beside.start()
beside.join(10)
assert not beside.is_alive()
in_child(look)
go.set()
slowly.join()
""",
        log_path,
    )
