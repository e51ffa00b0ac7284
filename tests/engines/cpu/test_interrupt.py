"""Ctrl-C in a long loop of native code: it ends soon, and the next call works."""

import signal
import subprocess
import sys
import threading
import time

import pytest

from tests.engines.cpu.busy import busy

INTERRUPTED = """
import signal, sys, time
import numpy as np
from tenferro.engines.cpu import memory, native, threads
from tenferro.engines.cpu.toolchain import compile_text
heavy, workers = sys.argv[1] == "heavy", int(sys.argv[2])
library = compile_text('''BUSY
define void @mark(ptr %p, i64 %b, i64 %e) {
  %xp = getelementptr i64, ptr %p, i64 1
  %x = load ptr, ptr %xp
  store double 4.2e+01, ptr %x
  ret void
}''', 2)
block = native.Block(heavy=heavy)
block.add_launch(library.address("busy"), 1 << 30, 1, [0])
address = block.seal()
enter = native.module().enter
mark = native.Block(heavy=heavy)
mark.add_patch(0, mark.add_launch(library.address("mark"), 1, 1, [0, 0]), 1)
with threads.threads(workers):
    count = threads.count()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job inherits it ignored
    print("ready", flush=True)
    try:
        enter(address, count)
    except KeyboardInterrupt:
        print(time.monotonic(), flush=True)
    x = np.zeros(1)
    assert enter(mark.seal(), count, x) == native.CLEAN and x[0] == 42
print("done", flush=True)
""".replace("BUSY", busy("busy", 1_000_000))


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("heavy", ["heavy", "light"])
def test_ctrl_c_ends_a_long_loop(heavy, workers):
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, heavy, str(workers)], stdout=subprocess.PIPE, text=True
    )
    watchdog = threading.Timer(60, process.kill)
    watchdog.start()
    try:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.15)
        sent = time.monotonic()
        process.send_signal(signal.SIGINT)
        seconds = float(process.stdout.readline()) - sent
        assert process.stdout.readline() == "done\n"
        assert process.wait(20) == 0
    finally:
        watchdog.cancel()
        process.kill()
        process.stdout.close()
    assert seconds < 0.1
