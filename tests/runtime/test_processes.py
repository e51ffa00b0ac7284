"""What only a process of its own shows of several engines: settings, interrupts, forks, exits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code],
        capture_output=True, text=True, timeout=120, cwd=ROOT, env=os.environ | environment,
    )  # fmt: skip


FUNCTION = """
import os, signal, sys, threading, time
import numpy as np, tenferro as tn

signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job inherits it ignored

@tn.jit
def f(a):
    with tn.on("cpu:1"):
        b = a * 2
    c = a - 1
    return b + c

x = np.arange(5.0)
"""


def test_engines_by_setting():
    code = FUNCTION + "print(tn.list_engines(), f(x).tolist(), len(f.lower(x).schedule.transfers))"
    done = run(code, TENFERRO_CPU_ENGINES="2")
    assert done.stdout == "['cpu:0', 'cpu:1'] [-1.0, 2.0, 5.0, 8.0, 11.0] 1\n", done.stderr
    assert "'cpu:1' is not registered" in run(code).stderr


@pytest.mark.parametrize("value", ["0", "-1", "two"])
def test_a_number_of_engines_that_is_none(value):
    done = run("import tenferro as tn; tn.list_engines()", TENFERRO_CPU_ENGINES=value)
    assert done.returncode != 0 and "TENFERRO_CPU_ENGINES" in done.stderr


INTERRUPTED = """
sys.path.insert(0, ".")
from tests.runtime.devices import HostEngine, placed, prepared_for
from tests.runtime.given import traced
from tenferro.runtime import Runtime

a, b = HostEngine(0), HostEngine(1)
runtime = Runtime.builder().register_engine(a).register_engine(b).build()
program = placed(traced(lambda x: ((x + 1) * 3, (x - 1) * 5), x), *ORDER)
prepared = prepared_for(runtime, program, a, b)
finished, runs = [], []

def slow():
    runs.append(1)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.5)
    finished.append(1)

a.before_run = slow
try:
    runtime.run([a, b], prepared, [x])
except KeyboardInterrupt:
    # Whatever was under way has ended before the caller may let go of its arrays, and nothing more begins.
    print("interrupted", len(finished), len(runs))
a.before_run = lambda: None
print(runtime.run([a, b], prepared, [x]).outputs[0].tolist())
"""


def test_an_interrupt_waits_for_what_runs_and_ends_the_rest():
    order = 'ORDER = ["reference:0", "reference:1", "reference:1", "reference:0"]\n'
    done = run(FUNCTION + order + INTERRUPTED)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("interrupted 1 "), done.stderr
    assert lines[1] == "[3.0, 6.0, 9.0, 12.0, 15.0]", done.stderr


def test_an_interrupt_on_the_callers_thread():
    """The same where launches happen on the thread that called: the node under way gets the interrupt."""
    immediate = """
from tenferro.engines.events import ImmediateDriver
import tests.runtime.devices as devices
devices.WorkerDriver = lambda name: ImmediateDriver()
"""
    order = 'ORDER = ["reference:0", "reference:1", "reference:1", "reference:0"]\nsys.path.insert(0, ".")\n'
    done = run(FUNCTION + order + immediate + INTERRUPTED)
    assert done.stdout.splitlines() == ["interrupted 0 1", "[3.0, 6.0, 9.0, 12.0, 15.0]"], done.stderr


def test_an_interrupt_of_native_code():
    code = FUNCTION + (
        "tn.cpu_engines(2)\n"
        "@tn.jit\n"
        "def long(a):\n"
        "    with tn.on('cpu:1'):\n"
        "        b = np.sin(np.exp(np.sin(np.exp(a))))\n"
        "    c = np.cos(np.exp(np.cos(np.exp(a))))\n"
        "    return b + c\n"
        "big = np.ones(3_000_000)\n"
        "expected = long(big)[:3].tolist()\n"
        "pid = os.getpid()\n"
        "threading.Timer(0.03, lambda: os.kill(pid, signal.SIGINT)).start()\n"
        "try:\n"
        "    while True: long(big)\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', long(big)[:3].tolist() == expected)\n"
    )
    done = run(code)
    assert done.stdout == "interrupted True\n", done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_fork_after_a_run():
    code = FUNCTION + (
        "import warnings; warnings.simplefilter('ignore')\n"
        "tn.cpu_engines(2)\n"
        "f(x)\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    print(f(x).tolist(), flush=True); os._exit(0)\n"
        "_, status = os.waitpid(pid, 0)\n"
        "print(status, f(x).tolist())\n"
    )
    done = run(code)
    assert done.stdout == "[-1.0, 2.0, 5.0, 8.0, 11.0]\n0 [-1.0, 2.0, 5.0, 8.0, 11.0]\n", done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_fork_while_others_run():
    """Locks of drivers, caches and runs may be held by threads that do not exist in the child."""
    code = FUNCTION + (
        "import warnings; warnings.simplefilter('ignore')\n"
        "tn.cpu_engines(2); f(x)\n"
        "stop = threading.Event()\n"
        "def busy():\n"
        "    while not stop.is_set():\n"
        "        f(x)\n"
        "threads = [threading.Thread(target=busy) for _ in range(4)]\n"
        "for t in threads: t.start()\n"
        "for _ in range(10):\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n"
        "        ok = f(x).tolist() == [-1.0, 2.0, 5.0, 8.0, 11.0]\n"
        "        tn.cpu_engines(3)\n"
        "        os._exit(0 if ok and f(x)[0] == -1 else 1)\n"
        "    assert os.waitpid(pid, 0)[1] == 0\n"
        "stop.set()\n"
        "for t in threads: t.join()\n"
        "print('done')\n"
    )
    done = run(code)
    assert done.stdout == "done\n", done.stderr


def test_the_process_ends_with_engines_at_work():
    code = FUNCTION + (
        "tn.cpu_engines(2)\n"
        "big = np.ones(2_000_000)\n"
        "def busy():\n"
        "    while True: f(big)\n"
        "for _ in range(3): threading.Thread(target=busy, daemon=True).start()\n"
        "time.sleep(0.3)\n"
        "print('end')\n"
    )
    for _ in range(3):
        done = run(code)
        assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr
