"""A process that is killed while it writes the disk cache leaves a cache that others read, write and bound."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from tenferro.engines.disk_cache import OBJECTS, DiskCache

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="kills processes as POSIX does")

OLD, NEW = b"old" * 50_000, b"new" * 70_000

KILLED = """
import io, os, signal, sys, tempfile
from pathlib import Path
from tenferro.engines.disk_cache import OBJECTS, DiskCache

cache = DiskCache(Path(sys.argv[1]), 1 << 24, OBJECTS)


def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


def after(function):
    def run(*args, **kwargs):
        function(*args, **kwargs)
        die()
    return run


def half(descriptor, mode):
    class Half(io.FileIO):
        def write(self, data):
            super().write(data[: len(data) // 2])
            die()
    return Half(descriptor, mode)


point = sys.argv[2]
if point == "made":
    tempfile.mkstemp = after(tempfile.mkstemp)
elif point == "half written":
    os.fdopen = half
elif point == "not renamed":
    os.replace = die
elif point == "renamed":
    os.replace = after(os.replace)
elif point == "evicting":
    os.unlink = after(os.unlink)
    cache.limit = 300_000
cache.store("k", b"new" * 70_000)
"""


def leftovers(directory):
    return [p for p in directory.iterdir() if p.suffix == ".tmp"]


@pytest.mark.parametrize("point", ["made", "half written", "not renamed", "renamed", "evicting"])
@pytest.mark.parametrize("before", [None, OLD], ids=["absent", "present"])
def test_a_kill_at_each_step_of_a_store(tmp_path, point, before):
    cache = DiskCache(tmp_path, 1 << 24, OBJECTS)
    cache.store("other", OLD)
    os.utime(tmp_path / "other.tfo", (1, 1))
    if before is not None:
        cache.store("k", before)
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), point], capture_output=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert cache.load("k") == (NEW if point in ("renamed", "evicting") else before)
    assert cache.load("other") == (None if point == "evicting" else OLD)
    assert len(leftovers(tmp_path)) == (point in ("made", "half written", "not renamed"))
    cache.store("k", b"again")
    assert cache.load("k") == b"again"
    # What a killed writer left is bounded with all else, the oldest first.
    for path in leftovers(tmp_path):
        os.utime(path, (2, 2))
    cache.limit = len(b"again") + 200
    cache.evict()
    assert [p.name for p in tmp_path.iterdir()] == ["k.tfo"]
    assert cache.load("k") == b"again"


STORING = """
import sys
from pathlib import Path
from tenferro.engines.disk_cache import OBJECTS, DiskCache
cache = DiskCache(Path(sys.argv[1]), 2_000_000, OBJECTS)
print("ready", flush=True)
i = 0
while True:
    cache.store(f"k{i % 7}", bytes([i % 7]) * (200_000 + i % 7))
    i += 1
"""


def test_kills_at_any_time_while_others_write(tmp_path):
    cache = DiskCache(tmp_path, 2_000_000, OBJECTS)
    delays = random.Random(0)
    for _ in range(6):
        writers = [
            subprocess.Popen([sys.executable, "-c", STORING, str(tmp_path)], stdout=subprocess.PIPE) for _ in range(2)
        ]
        for writer in writers:
            assert writer.stdout.readline() == b"ready\n"
        time.sleep(0.02 + 0.1 * delays.random())
        for writer in writers:
            writer.kill()
            writer.communicate()
        for i in range(7):
            found = cache.load(f"k{i}")
            assert found is None or found == bytes([i]) * (200_000 + i)
        cache.store("mine", b"mine")
        assert cache.load("mine") == b"mine"
    cache.evict()
    assert sum(p.stat().st_size for p in tmp_path.iterdir()) <= 2_000_000


PROGRAM = """
import numpy as np, tenferro as tn
x = np.arange(1000.0)
print("ready", flush=True)
for k in range(4):
    f = tn.jit(lambda x: np.sin(x) * k + np.cumsum(x))
    np.testing.assert_allclose(f(x), np.sin(x) * k + np.cumsum(x), rtol=1e-12)
print("done", flush=True)
"""


def test_programs_killed_while_they_compile_leave_a_cache_that_programs_use(tmp_path):
    environment = os.environ | {"TENFERRO_CACHE": "1", "TENFERRO_CACHE_DIR": str(tmp_path)}
    delays = random.Random(1)
    for _ in range(4):
        command = [sys.executable, "-c", PROGRAM]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert process.stdout.readline() == b"ready\n"
        time.sleep(0.6 * delays.random())
        process.kill()
        process.communicate()
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, timeout=120)
        assert done.returncode == 0 and done.stdout.endswith(b"done\n"), done.stderr.decode()
    assert any(p.suffix == OBJECTS.suffix for p in tmp_path.iterdir())
