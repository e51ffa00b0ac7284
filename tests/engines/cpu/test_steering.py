"""Workers leave out the core of the thread that calls regions, and keep to what others set for them."""

import os
import subprocess
import sys

import pytest

CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
pytestmark = pytest.mark.skipif(len(CORES) < 2, reason="one core, or a system that does not place threads")

SCRIPT = """
import os, sys, threading, time
import numpy as np
import tenferro as tn

first, second = map(int, sys.argv[1:3])
every = os.sched_getaffinity(0)
f = tn.jit(lambda x: np.sqrt(x) + 1)
x = np.ones(1 << 21)
expected = f(x).tobytes()
workers = [t for t in threading.enumerate() if t.name.startswith("tenferro-worker")]
assert workers, threading.enumerate()


def cores_after_call_on(core):
    os.sched_setaffinity(0, {core})
    time.sleep(0.02)  # the workers park
    assert f(x).tobytes() == expected
    return [os.sched_getaffinity(w.native_id) for w in workers]


def wait_for(core, cores):
    for _ in range(100):  # a worker that has not parked yet is not woken, and so not steered
        if all(c == cores for c in cores_after_call_on(core)):
            return
    raise AssertionError((core, cores, cores_after_call_on(core)))


wait_for(first, every - {first})
wait_for(second, every - {second})
wait_for(first, every - {first})
for w in workers:
    os.sched_setaffinity(w.native_id, {first})
wait_for(second, {first})
wait_for(first, {first})
assert f(x).tobytes() == expected
"""


def run(threads: int) -> None:
    environment = os.environ | {"TENFERRO_NUM_THREADS": str(threads)}
    command = [sys.executable, "-c", SCRIPT, str(CORES[0]), str(CORES[1])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_worker_wakes_on_another_core_than_its_caller():
    run(2)


def test_several_workers():
    run(8)


MANY = """
import os, threading, time
import numpy as np
import tenferro as tn

every = os.sched_getaffinity(0)
f = tn.jit(lambda x: np.sqrt(x) + 1)
x = np.ones(1 << 21)
for _ in range(5):
    f(x)
    time.sleep(0.02)
workers = [t for t in threading.enumerate() if t.name.startswith("tenferro-worker")]
assert len(workers) == 11
before = [os.sched_getaffinity(w.native_id) for w in workers]
for core in sorted(every)[:2]:
    os.sched_setaffinity(0, {core})
    time.sleep(0.02)
    f(x)
assert [os.sched_getaffinity(w.native_id) for w in workers] == before
"""


def test_many_workers_are_left_alone():
    environment = os.environ | {"TENFERRO_NUM_THREADS": "12"}
    done = subprocess.run([sys.executable, "-c", MANY], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
