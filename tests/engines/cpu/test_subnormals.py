"""Subnormal numbers are kept, on every thread; a setting flushes them in kernels, and nowhere else."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tenferro.engines.cpu import toolchain

if not toolchain.supported():
    pytest.skip("this machine is served by the reference engine", allow_module_level=True)

PROGRAM = """
import numpy as np, tenferro as tn

tiny = {"f": np.float32(1e-40), "d": np.float64(1e-310)}
for code, small in tiny.items():
    x = np.full(300_000, small)
    matrix = np.full((200, 200), small)
    half = x.dtype.type(0.5)
    with tn.threads(3):
        found = [
            tn.jit(lambda x: x * half)(x), tn.jit(lambda x: x.sum())(x), tn.jit(lambda x: np.sqrt(x) * np.sqrt(x))(x),
            tn.jit(lambda m: m @ np.eye(200, dtype=m.dtype))(matrix),
            tn.jit(lambda x: tn.lax.scan(lambda c, a: (c + a, c), x[0], x[:50])[1][1:])(x),
            tn.jit(lambda x: x[x >= 0] + 0)(x),
        ]
    print(code, *["kept" if np.all(np.asarray(y) != 0) else "flushed" if not np.any(y) else "mixed" for y in found])
    assert np.all(x * half != 0) and float(small) * 0.5 != 0, "the caller's own arithmetic"
"""


@pytest.mark.parametrize(("setting", "expected"), [("0", "kept"), ("1", "flushed")])
def test_kernels_keep_or_flush_them(setting: str, expected: str) -> None:
    environment = os.environ | {"TENFERRO_FLUSH_SUBNORMALS": setting}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [" ".join([code, *[expected] * 6]) for code in "fd"]


HANDLER = """
import signal, threading
import numpy as np, tenferro as tn

seen, later, started, go = [], [], [], threading.Event()
tiny = lambda: float("1e-310") * 0.5 != 0 and bool((np.array([1e-310]) * 0.5)[0] != 0)

def work():
    go.wait()
    later.append(tiny())

def handler(*_):
    seen.append(tiny())
    started.append(threading.Thread(target=work))
    started[-1].start()

signal.signal(signal.SIGALRM, handler)
f = tn.jit(lambda x: np.exp(np.sin(x) * np.cos(x)))
x = np.full(8_000_000, 0.5)
f(x)
while len(seen) < 5:
    signal.setitimer(signal.ITIMER_REAL, 0.005)
    f(x)
signal.setitimer(signal.ITIMER_REAL, 0)
go.set()
for thread in started:
    thread.join()
print(all(seen), all(later))
"""


def test_signal_handlers_and_the_threads_that_they_start_keep_them() -> None:
    environment = os.environ | {"TENFERRO_FLUSH_SUBNORMALS": "1"}
    done = subprocess.run([sys.executable, "-c", HANDLER], env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout == "True True\n", done.stderr
