"""Kernels compiled side by side: the same objects as one after the other, on threads, with and without llvmlite's lock,
and through forks."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.cpu import code_generator, compiling, toolchain
from tenferro.engines.cpu.compiling import compile_all, together
from tenferro.engines.cpu.toolchain import compile_text, host_target

if not toolchain.supported():
    pytest.skip("this machine is served by the reference engine", allow_module_level=True)


def seconds(*works: Callable[[], object]) -> list[tuple[Callable[[], object], Callable[[], object]]]:
    """Works without a first part."""
    return [(lambda: None, work) for work in works]


def text(factor: int) -> str:
    lines = "\n".join(f"  %y{k} = mul i64 %x, {factor * 1000 + k}" for k in range(200))
    return f"define i64 @f(i64 %x) {{\n{lines}\n  ret i64 %y7\n}}"


def emitted(one: str) -> bytes:
    return toolchain._compile(one, 0, host_target(), False, {})


@pytest.fixture(params=["without the lock", "with the lock"])
def _either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "with the lock":
        monkeypatch.setattr(code_generator, "unlocked", lambda llvm: None)


@pytest.mark.usefixtures("_either_way")
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_objects_are_those_of_one_thread(threads: int) -> None:
    texts = [text(k) for k in range(24)]
    alone, found = [emitted(x) for x in texts], [b""] * len(texts)

    def work(k: int) -> Callable[[], None]:
        return lambda: found.__setitem__(k, emitted(texts[k]))

    together(seconds(*[work(k) for k in range(len(texts))]), threads)
    assert found == alone


def test_llvmlites_function_is_the_one_that_is_known() -> None:
    llvm = toolchain._binding()
    assert code_generator.unlocked(llvm) is not None


@pytest.mark.parametrize("change", ["no function", "another signature", "another result"])
def test_another_llvmlite_is_called_the_usual_way(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    llvm, expected = toolchain._binding(), emitted(text(3))
    own = llvm.ffi.lib.LLVMPY_TargetMachineEmitToMemory

    class Function:
        argtypes = own.argtypes[:-1] if change == "another signature" else own.argtypes
        restype = None if change == "another result" else own.restype

        def __call__(self, *_: object) -> None:
            raise AssertionError("called as it is not")

    class Wrapped:
        __slots__ = ("_cfn",)

        def __init__(self) -> None:
            if change != "no function":
                self._cfn = Function()

        def __call__(self, *args: object) -> Any:
            return own(*args)

    monkeypatch.setitem(llvm.ffi.lib._fntab, "LLVMPY_TargetMachineEmitToMemory", Wrapped())
    assert code_generator.unlocked(llvm) is None
    assert emitted(text(3)) == expected


def test_works_are_done_side_by_side() -> None:
    meeting = threading.Barrier(3, timeout=30)
    together(seconds(*[meeting.wait] * 3), 3)


def test_the_caller_does_all_first_parts() -> None:
    mine, done = threading.current_thread(), []

    def first() -> None:
        done.append(threading.current_thread())

    together([(first, lambda: time.sleep(0.01))] * 6, 3)
    assert done == [mine] * 6


def test_one_that_fails_leaves_the_others() -> None:
    done = []

    def fails() -> None:
        raise ValueError

    together([*seconds(fails, lambda: done.append(1)), (fails, lambda: done.append(2)), *seconds(fails)], 2)
    assert sorted(done) == [1, 2]


def test_an_interrupt_waits_for_what_is_begun_and_begins_nothing() -> None:
    begun, ended = threading.Event(), []

    def slow() -> None:
        begun.set()
        time.sleep(0.1)
        ended.append("slow")

    def interrupted() -> None:
        if threading.current_thread() is not threading.main_thread():
            slow()
            return
        begun.wait(30)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        together(seconds(interrupted, interrupted, *[lambda: ended.append("late")] * 5), 2)
    assert ended == ["slow"]
    assert not [t for t in threading.enumerate() if t.name == "tenferro-compiler"]


def test_without_further_threads_the_caller_does_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    done: list[int] = []
    together(seconds(*[lambda: done.append(1)] * 3), 3)
    assert done == [1, 1, 1]


class Source:
    def __init__(self, size: int, order: list[int], is_known: bool = False) -> None:
        self.size, self.order, self.is_known = size, order, is_known

    def prepare(self, level: int) -> None:
        self.order.append(-self.size)

    def library(self, level: int) -> Any:
        self.order.append(self.size)

    def is_ready(self, level: int) -> bool:
        return self.is_known

    def ready(self) -> list[Any]:
        return []


def test_the_largest_comes_first_and_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[int] = []
    small, large, known = Source(1, order), Source(9, order), Source(5, order, is_known=True)
    middle = Source(4, order)
    monkeypatch.setattr(compiling, "together", lambda works, threads: [part() for work in works for part in work])
    compile_all([(middle, 0), (small, 0), (large, 0), (small, 0), (known, 0)], 2)
    assert order == [-9, 9, -4, 4, -1, 1]
    compile_all([(small, 0), (large, 0)], 1)
    compile_all([(small, 0)], 2)
    assert order == [-9, 9, -4, 4, -1, 1]  # left to whoever asks for it


def loss(w: Any, v: Any, x: Any) -> Any:
    h = np.maximum(x @ w, 0)
    z = h @ v
    return np.sum(np.log(np.sum(np.exp(z - z.max(axis=1, keepdims=True)), axis=1))) + np.sum(np.tanh(h))


def test_bits_are_those_of_one_thread() -> None:
    rng = np.random.default_rng(0)
    operands = [rng.standard_normal(shape, np.float32) for shape in ((30, 20), (20, 7), (50, 30))]
    found = []
    for threads in (1, 2, 4):
        tn.default_runtime().clear_caches()
        with tn.threads(threads):
            found.append(tn.jit(tn.grad(loss, argnums=(0, 1)))(*operands))
    for other in found[1:]:
        assert [x.tobytes() for x in other] == [x.tobytes() for x in found[0]]


def test_what_does_not_compile_is_told_by_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> bytes:
        raise RuntimeError("out of registers")

    monkeypatch.setattr(code_generator, "emitted", broken)
    monkeypatch.setattr(toolchain, "disk_cache", lambda: None)
    x = np.linspace(0, 1, 91)
    with pytest.raises(RuntimeError, match="out of registers"):
        tn.jit(lambda x: (np.cumprod(x * 3.25)[::-1].sum() * (x - 7.125), x.max() + 2.5 * x.min()))(x)


def test_compiles_are_recorded_with_the_program() -> None:
    def of_several(x: Any, y: Any) -> Any:
        return x @ y, (x * 1.75).sum(axis=1), np.sqrt(y * y + 0.375)

    x = np.ones((40, 40))
    with tn.threads(2), tn.profile() as p:
        tn.jit(of_several)(x, x)
    made = [e for e in p.events if type(e).__name__ == "Compile"]
    assert len(made) >= 2 and {e.program for e in made} <= {"of_several", ""}


FORKS = '''
import os, signal, threading, time
from functools import partial
from tenferro.engines.cpu.compiling import together
from tenferro.engines.cpu.toolchain import compile_text
TEXT = """define i64 @f(i64 %x) {{
{body}
  ret i64 %x
}}"""
def text(i): return TEXT.format(body="\\n".join(f"  %y{j} = mul i64 %x, {i * 1000 + j}" for j in range(200)))
stop, compiled = False, 0
def one(k):
    compile_text(text(k), 0)
def background():
    global compiled
    while not stop:
        together([(len, partial(one, compiled + j)) for j in range(6)], 3); compiled += 6
thread = threading.Thread(target=background); thread.start()
while compiled < 6: time.sleep(.005)
failed = 0
for child in range(20):
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        done = []
        together([(len, lambda k=k: done.append(one(100_000 + 10 * child + k))) for k in range(4)], 2)
        os._exit(len(done) != 4)
    failed += os.waitpid(pid, 0)[1] != 0
    if failed: break
stop = True; thread.join()
raise SystemExit(failed)
'''


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_children_forked_while_several_threads_compile() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKS], timeout=240, capture_output=True,
        env={"PATH": "", "TENFERRO_CACHE": "0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()


def test_libraries_of_threads_run() -> None:
    import ctypes

    libraries: list[Any] = []
    together(seconds(*[partial(lambda k: libraries.append((k, compile_text(text(k), 0))), k) for k in range(6)]), 3)
    for k, library in libraries:
        function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(library.address("f"))
        assert function(3) == 3 * (k * 1000 + 7)
