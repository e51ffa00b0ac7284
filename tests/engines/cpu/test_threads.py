import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tenferro.engines.cpu import machine, native, threads, toolchain
from tenferro.engines.cpu.native_prelude import HAS_FUTEX
from tenferro.engines.cpu.toolchain import compile_text
from tests.engines.cpu.busy import busy

if not toolchain.supported():
    pytest.skip("this machine is served by the reference engine", allow_module_level=True)

# mark: counts[i] += 1 for every item. outer: for every item, a nested region of mark over inner params.
KERNELS = """
define void @mark(ptr %p, i64 %b, i64 %e) {
entry:
  %xp = getelementptr i64, ptr %p, i64 1
  %x = load ptr, ptr %xp
  br label %l
l:
  %i = phi i64 [%b, %entry], [%j, %l]
  %px = getelementptr i64, ptr %x, i64 %i
  %old = atomicrmw add ptr %px, i64 1 monotonic
  %j = add i64 %i, 1
  %c = icmp slt i64 %j, %e
  br i1 %c, label %l, label %d
d:
  ret void
}
define void @slow_mark(ptr %p, i64 %b, i64 %e) {
  call void @spin(ptr %p, i64 %b, i64 %e)
  call void @mark(ptr %p, i64 %b, i64 %e)
  ret void
}
define void @outer(ptr %p, i64 %b, i64 %e) {
entry:
  %p1 = getelementptr i64, ptr %p, i64 1
  %p2 = getelementptr i64, ptr %p, i64 2
  %p3 = getelementptr i64, ptr %p, i64 3
  %p4 = getelementptr i64, ptr %p, i64 4
  %region = load ptr, ptr %p1
  %function = load i64, ptr %p2
  %params = load i64, ptr %p3
  %total = load i64, ptr %p4
  br label %l
l:
  %i = phi i64 [%b, %entry], [%j, %l]
  %r = call i64 %region(i64 %function, i64 %params, i64 %total, i64 3, i64 4, i64 -1)
  %j = add i64 %i, 1
  %c = icmp slt i64 %j, %e
  br i1 %c, label %l, label %d
d:
  ret void
}
""" + busy("spin", 300_000)


# meet: arrive at word 0, wait until 4 have or word 2 says to give up, then count at word 1 those that saw all.
MEETING = """
define void @meet(ptr %p, i64 %b, i64 %e) {
entry:
  %xp = getelementptr i64, ptr %p, i64 1
  %x = load ptr, ptr %xp
  %y = getelementptr i64, ptr %x, i64 1
  %z = getelementptr i64, ptr %x, i64 2
  %old = atomicrmw add ptr %x, i64 1 seq_cst
  br label %l
l:
  %n = load atomic i64, ptr %x seq_cst, align 8
  %all = icmp eq i64 %n, 4
  br i1 %all, label %seen, label %next
next:
  %late = load atomic i64, ptr %z seq_cst, align 8
  %more = icmp eq i64 %late, 0
  br i1 %more, label %l, label %d
seen:
  %o = atomicrmw add ptr %y, i64 1 seq_cst
  br label %d
d:
  ret void
}
"""


@pytest.fixture(scope="module")
def kernels():
    return compile_text(KERNELS, 2)


def mark_block(kernels, n, grain, heavy=True, name="mark"):
    block = native.Block(heavy=heavy)
    block.add_patch(0, block.add_launch(kernels.address(name), n, grain, [0, 0]), 1)
    return block


@pytest.mark.parametrize("n", [2, 3, 8])
def test_every_chunk_runs_exactly_once(kernels, n):
    enter = native.module().enter
    with threads.threads(n):
        count = threads.count()
        for total in (1, 2, 5, 64, 1000):
            block = mark_block(kernels, total, 1)
            address = block.seal()
            for _ in range(50):
                counts = np.zeros(total, dtype=np.int64)
                enter(address, count, counts)
                assert (counts == 1).all()


def test_a_region_ends_only_when_its_last_chunk_has(kernels):
    enter = native.module().enter
    address = (block := mark_block(kernels, 7, 1, name="slow_mark")).seal()
    with threads.threads(4):
        count = threads.count()
        for _ in range(60):
            counts = np.zeros(7, dtype=np.int64)
            enter(address, count, counts)
            assert (counts == 1).all()
    del block


def test_workers_take_part(kernels):
    """Chunks that each wait for all threads to be in the region: they meet only if several threads run them. The time
    is bounded generously: a busy machine may let a thread wait for seconds."""
    if not HAS_FUTEX:
        pytest.skip("no workers without a futex")
    library = compile_text(MEETING, 2)
    block = native.Block(heavy=True)
    block.add_patch(0, block.add_launch(library.address("meet"), 4, 1, [0, 0]), 1)
    with threads.threads(4):
        arrived = np.zeros(3, dtype=np.int64)
        give_up = threading.Timer(120, arrived.__setitem__, (2, 1))
        give_up.start()
        try:
            native.module().enter(block.seal(), threads.count(), arrived)
        finally:
            give_up.cancel()
    assert arrived.tolist() == [4, 4, 0]


def test_short_regions_in_turn_never_mix(kernels):
    """A worker that comes late to one region must not take a chunk of the next: each has its own array."""
    enter = native.module().enter
    blocks = [mark_block(kernels, n, 1, heavy=False) for n in (2, 3, 7)]
    addresses = [(b.seal(), n) for b, n in zip(blocks, (2, 3, 7), strict=True)]
    with threads.threads(6):
        count = threads.count()
        arrays = []
        for i in range(6000):
            address, n = addresses[i % 3]
            counts = np.zeros(n, dtype=np.int64)
            enter(address, count, counts)
            arrays.append(counts)
    assert all((a == 1).all() for a in arrays)


def nested_run(kernels, enter, inner_total, outer_total, count):
    counts = np.zeros(inner_total, dtype=np.int64)
    inner = np.array([0, counts.ctypes.data], dtype=np.int64)
    block = native.Block(heavy=True)
    region = native.module().library.address("region")
    block.add_launch(
        kernels.address("outer"), outer_total, 1, [0, region, kernels.address("mark"), inner.ctypes.data, inner_total]
    )
    enter(block.seal(), count)
    return counts


def test_nested_and_concurrent_regions_from_eight_threads(kernels):
    enter = native.module().enter

    def run(seed):
        flat = mark_block(kernels, 200 + seed, 3)
        address = flat.seal()
        with threads.threads(2 + seed % 5):
            count = threads.count()
            for i in range(60):
                counts = np.zeros(200 + seed, dtype=np.int64)
                enter(address, count, counts)
                assert (counts == 1).all()
                assert (nested_run(kernels, enter, 10 + seed, 4 + i % 9, count) == 4 + i % 9).all()
        return True

    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(run, seed) for seed in range(8)]
        assert all(f.result(timeout=60) for f in futures)


def test_more_regions_than_slots(kernels):
    enter = native.module().enter
    start = threading.Barrier(40)

    def run(seed):
        address = (block := mark_block(kernels, 3000, 1)).seal()
        start.wait(30)
        for _ in range(5):
            counts = np.zeros(3000, dtype=np.int64)
            enter(address, 3, counts)
            assert (counts == 1).all()
        return block is not None

    with threads.threads(3):
        threads.count()
    with ThreadPoolExecutor(40) as pool:
        assert all(f.result(timeout=60) for f in [pool.submit(run, i) for i in range(40)])


def test_the_scope_is_per_thread_and_nests():
    assert threads.count() == threads.default_count()
    with threads.threads(5):
        assert threads.count() == 5
        with threads.threads(1):
            assert threads.count() == 1
        assert threads.count() == 5
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(threads.count).result() == threads.default_count()
    assert threads.count() == threads.default_count()


@pytest.mark.parametrize("n", [0, -1, 1.5, True, "2", 5000])
def test_the_number_is_checked(n):
    with pytest.raises(ValueError, match="an int from 1 to 4095 is needed"), threads.threads(n):
        pass


def test_workers_start_at_need_and_are_shared():
    if not HAS_FUTEX:
        pytest.skip("no workers without a futex")
    with threads.threads(7):
        threads.count()
    names = [t.name for t in threading.enumerate() if t.name.startswith("tenferro-worker")]
    assert len(names) == len(set(names)) >= 6
    with threads.threads(7):
        threads.count()
    assert len([t for t in threading.enumerate() if t.name.startswith("tenferro-worker")]) == len(names)


SETUP = """
import os, signal, sys, threading
import numpy as np
from tenferro.engines.cpu import native, threads
from tenferro.engines.cpu.toolchain import compile_text
library = compile_text('''KERNELS''', 2)
def run(n=500):
    block = native.Block(heavy=True)
    block.add_patch(0, block.add_launch(library.address("mark"), n, 1, [0, 0]), 1)
    counts = np.zeros(n, dtype=np.int64)
    native.module().enter(block.seal(), threads.count(), counts)
    assert (counts == 1).all()
""".replace("KERNELS", KERNELS)


def script(code, timeout=60, **environment):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SETUP + code], capture_output=True, text=True, timeout=timeout,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_a_forked_child_has_a_pool_of_its_own():
    code = """
with threads.threads(4):
    run()
    stop = False
    def background():
        with threads.threads(4):
            while not stop: run(2000)
    others = [threading.Thread(target=background) for _ in range(3)]
    for t in others: t.start()
    failed = 0
    for child in range(20):
        pid = os.fork()
        if pid == 0:
            signal.alarm(20)
            assert len(threads._pool.workers) == 0
            for _ in range(20): run()
            assert len(threads._pool.workers) == 3 and all(t.is_alive() for t in threads._pool.workers)
            os._exit(0)
        failed += os.waitpid(pid, 0)[1] != 0
    stop = True
    for t in others: t.join()
    run()
print(failed)
"""
    assert script(code) == "0\n"


def test_a_fork_in_a_signal_handler_inside_a_region():
    """The child has lost the region's workers: its call raises, and its next one works. The parent's is whole."""
    code = """
import time
slow = compile_text('''SLOW''', 2)
block = native.Block(heavy=True)
block.add_launch(slow.address("slow"), 400, 1, [0])
children = []
def handler(*_):
    children.append(os.fork())
signal.signal(signal.SIGALRM, handler)
with threads.threads(3):
    count = threads.count()
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        native.module().enter(block.seal(), count)
    except RuntimeError as error:
        assert "forked" in str(error) and children == [0]
        run()
        os._exit(7)
    assert len(children) == 1 and children[0] > 0
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 7
    run()
print("whole")
"""
    if not HAS_FUTEX:
        pytest.skip("no workers without a futex")
    assert script(code.replace("SLOW", busy("slow", 2_000_000))) == "whole\n"


def test_the_pool_ends_with_the_interpreter():
    code = """
import atexit
atexit.register(lambda: (run(), print("late call")))
with threads.threads(4): run()
def late():
    while True: run(5000)
threading.Thread(target=late, daemon=True).start()
print("end")
"""
    # Handlers run last in, first out: this one runs before the pool's; registered before the import it would run after.
    assert script(code) == "end\nlate call\n"


def test_regions_still_run_after_the_pool_has_stopped():
    code = """
threads._stop()
assert threads.count() == 1
run()
print("ran")
"""
    assert script(code) == "ran\n"


def test_the_environment_sets_the_number():
    assert script("print(threads.count()); run()", TENFERRO_NUM_THREADS="3") == ("3\n" if HAS_FUTEX else "1\n")


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_affinity_sets_the_number():
    code = "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); print(threads.count()); run()"
    assert script(code) == "1\n"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_cgroup_quotas_are_read(tmp_path):
    membership = tmp_path / "cgroup"
    root = tmp_path / "fs"
    assert machine.cgroup_quota(membership, root) is None
    membership.write_text("0::/a/b\n")
    assert machine.cgroup_quota(membership, root) is None
    write(root / "a" / "b" / "cpu.max", "max 100000\n")
    assert machine.cgroup_quota(membership, root) is None
    write(root / "a" / "cpu.max", "250000 100000\n")
    assert machine.cgroup_quota(membership, root) == 2.5
    write(root / "a" / "b" / "cpu.max", "50000 100000\n")
    assert machine.cgroup_quota(membership, root) == 0.5


def test_cgroup_version_1_quotas_are_read(tmp_path):
    membership = tmp_path / "cgroup"
    membership.write_text("5:memory:/x\n4:cpu,cpuacct:/x\n")
    write(tmp_path / "cpu" / "x" / "cpu.cfs_quota_us", "300000\n")
    write(tmp_path / "cpu" / "x" / "cpu.cfs_period_us", "100000\n")
    assert machine.cgroup_quota(membership, tmp_path) == 3.0
    write(tmp_path / "cpu" / "x" / "cpu.cfs_quota_us", "-1\n")
    assert machine.cgroup_quota(membership, tmp_path) is None
