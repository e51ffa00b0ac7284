"""Ctrl-C at any step of a first call: it is told, nothing is left behind, and the next call is right."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tenferro.engines.cpu import toolchain

if not toolchain.supported():
    pytest.skip("this machine is served by the reference engine", allow_module_level=True)

PROGRAM = """
import os, signal, sys, threading
import numpy as np
import tenferro as tn

signal.signal(signal.SIGINT, signal.default_int_handler)
folder, name, event, skipped = sys.argv[1:]
left = [int(skipped)]


def interrupt(frame, kind, _):
    code = frame.f_code
    if kind == event and code.co_name == name and folder in code.co_filename and left:
        left[0] -= 1
        if left[0] < 0:
            left.clear()
            os.kill(os.getpid(), signal.SIGINT)


@tn.jit
def f(x):
    return np.cumsum(np.exp(x).sum(axis=1)).max(), (x * 2).sum(axis=0)


x = np.linspace(0.0, 1.0, 35).reshape(5, 7)
sys.setprofile(interrupt)
try:
    with tn.threads(2):
        f(x)
    told = False
except KeyboardInterrupt:
    told = True
sys.setprofile(None)
first, second = f(x)
assert np.allclose(first, np.exp(x).sum()) and np.allclose(second, 2 * x.sum(axis=0))


def fork():
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


forking = threading.Thread(target=fork, daemon=True)
forking.start()
forking.join(20)
assert not forking.is_alive(), "a fork waits for a thread that holds nothing"
for thread in [t for t in threading.enumerate() if t.name == "tenferro-compiler"]:
    thread.join(5)
    assert not thread.is_alive(), "a thread waits for work"
print("told" if told else "not met")
"""

STEPS = [
    ("threading", "start", "return", 0),
    ("cpu", "together", "call", 0),
    ("cpu", "_fold_function", "call", 0),
    ("cpu", "padding_function", "call", 0),
    ("cpu", "text", "call", 0),
    ("cpu", "text", "return", 3),
    ("cpu", "compile_made", "call", 0),
    ("cpu", "_load", "return", 0),
    ("cpu", "uninterrupted", "call", 0),
    ("cpu", "uninterrupted", "return", 0),
    ("threading", "join", "call", 0),
    ("tracer", "own", "return", 0),
]


@pytest.mark.parametrize(("folder", "name", "event", "skipped"), STEPS)
def test_the_next_call_is_right_and_nothing_is_left(folder: str, name: str, event: str, skipped: int) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, folder, name, event, str(skipped)],
        timeout=120, capture_output=True, text=True, env={"PATH": "", "TENFERRO_CACHE": "0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "told"
