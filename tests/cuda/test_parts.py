"""Parts of programs on GPUs beside parts on the CPU: what is found, told, called and waited for."""

from __future__ import annotations

import gc
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.cuda.engine import CudaEngine
from tenferro.engines.errors import BrokenEngineError
from tenferro.lowering import lower
from tenferro.runtime import ExtensionModule, Family
from tenferro.tracer.config import config
from tests.cuda.engine_cases import K, X, compile_all, same, softmax
from tests.cuda.shim.compile import missing
from tests.cuda.shim_device import device, registered, shim_engine

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")
SECONDS = 60.0
log: list[Any] = []


def noted(x: Any, tag: Any = 0) -> Any:
    log.append(tag)
    return x


def noted_there(lent: Any, x: Any, tag: Any = 0) -> Any:
    log.append(("cuda", tag))
    return x.numpy()


def both(lent: Any, x: Any) -> Any:
    """An executor that runs a program over two engines, its own among them."""
    return _two_engines(x.numpy())


@tn.jit
def _two_engines(x: Any) -> Any:
    with tn.on("cuda:0"):
        y = x + 1.0
    with tn.on("cpu:0"):
        z = x * 2.0
    return y + z


def same_type(types: Any, params: Any) -> Any:
    return (types[0],)


note = Family("test.note.v1", same_type, noted, ordered=True)
nested = Family("test.nested.v1", same_type, lambda x: (x + 1.0) + x * 2.0)
MODULE = ExtensionModule(
    "parts", (note, nested), {("test.note.v1", "cuda"): noted_there, ("test.nested.v1", "cuda"): both}
)


@pytest.fixture
def cuda() -> Iterator[CudaEngine]:
    """``cuda:0`` in the default runtime, with the families above."""
    compile_all()
    log.clear()
    runtime = tn.default_runtime()
    runtime.reconfigure(lambda c: c.install_extension(MODULE))
    engine = shim_engine()
    with registered(engine):
        yield engine
    runtime.reconfigure(lambda c: c.modules.remove(MODULE))
    gc.collect()
    assert device(engine).faults == [] and device(engine).pool().used == 0


def finished(work: Callable[[], Any]) -> Any:
    """The result of ``work``, on a thread: a deadlock must not stop the tests."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()), daemon=True)
    thread.start()
    thread.join(SECONDS)
    assert not thread.is_alive(), "it waits for ever"
    return found[0]


def picked(x: Any, i: Any) -> Any:
    """A part on the GPU that looks for errors, one on the CPU beside it, and effects after both."""
    with tn.on("cuda:0"):
        a = x[i] * 2.0
    with tn.on("cpu:0"):
        b = x.max(axis=0)
        c = note(a.max(axis=0) + b, tag="after")
    return c, b


def test_errors_stop_what_comes_after_on_the_host(cuda: CudaEngine):
    f = tn.jit(picked)
    good = np.array([1, 2])
    same(f(X, good), (X[good].max(axis=0) * 2.0 + X.max(axis=0), X.max(axis=0)))
    assert log == ["after"]
    line = picked.__code__.co_firstlineno + 3
    with pytest.raises(IndexError, match=rf"indices contain 77.*test_parts.py:{line}\)") as caught:
        f(X, np.array([1, 77]))
    assert not hasattr(caught.value, "__notes__") and log == ["after"]
    del caught
    f(X, good)
    assert log == ["after"] * 2 and not cuda.broken


def test_the_thread_that_submits_waits_for_no_work(cuda: CudaEngine, monkeypatch: pytest.MonkeyPatch):
    waiting: list[str] = []
    real = device(cuda).stream().work_off

    def work_off(position: int) -> None:
        waiting.append(threading.current_thread().name)
        real(position)

    monkeypatch.setattr(device(cuda).stream(), "work_off", work_off)
    tn.jit(picked)(X, np.array([1, 2]))
    assert waiting and "tenferro-cuda:0" not in waiting


def divided(a: Any, b: Any) -> Any:
    with tn.on("cuda:0"):
        q = a // b
    with tn.on("cpu:0"):
        r = a + b
    return q, r


def test_warnings_are_told_once_as_the_caller_wants_them(cuda: CudaEngine):
    f, zeros = tn.jit(divided), np.where(K > 5, 0, 3)
    with np.errstate(divide="ignore"):
        wanted = K // zeros, K + zeros
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        same(f(K, zeros), wanted)
    assert len(found) == 1 and "divisor 0 under the dividend" in str(found[0].message)
    with np.errstate(divide="ignore"), warnings.catch_warnings():
        warnings.simplefilter("error")
        same(f(K, zeros), wanted)
    with np.errstate(divide="raise"), pytest.raises(ZeroDivisionError, match="floor_divide"):
        f(K, zeros)


def test_effects_on_the_gpu_are_not_had_after_an_error_nor_twice(cuda: CudaEngine):
    def flat(x: Any, i: Any, j: Any) -> Any:
        a = note(x[i], tag="between")
        return a[j] * 2.0

    def parts(x: Any, i: Any, j: Any) -> Any:
        with tn.on("cuda:0"):
            a = note(x[i], tag="between")
        with tn.on("cpu:0"):
            b = x + 1.0
        with tn.on("cuda:0"):
            c = note(a + b[:2], tag="late")
        return a[j] * 2.0, c

    good, bad = np.array([1, 2]), np.array([1, 77])
    f = tn.jit(flat, engine="cuda:0")
    same(f(X, good, good[:1]), X[good][good[:1]] * 2.0)
    assert log == [("cuda", "between")]
    with pytest.raises(IndexError, match="indices contain 77"):
        f(X, bad, good[:1])
    assert log == [("cuda", "between")]
    with pytest.raises(IndexError, match="indices contain 77"):
        f(X, good, bad)
    assert log == [("cuda", "between")] * 2  # looking for the error calls nobody
    log.clear()
    g = tn.jit(parts)
    g(X, good, good[:1])
    assert log == [("cuda", "between"), ("cuda", "late")]
    with pytest.raises(IndexError, match="indices contain 77"):
        g(X, bad, good[:1])
    assert log == [("cuda", "between"), ("cuda", "late")]


def test_effects_of_a_later_part_wait_for_the_checks_of_an_earlier_one(cuda: CudaEngine):
    """Nobody waits for the earlier one before the executor would be called."""
    first = cuda.compile(lower(tn.jit(lambda x, i: x[i] * 2.0).trace(X, np.array([0])), config()))
    executors = {"test.note.v1": partial(noted_there, 0)}
    then = cuda.compile(lower(tn.jit(lambda x: note(x + 1.0)).trace(X), config()), executors)
    x = cuda.receive(X)

    def attempt(index: int) -> tuple[list[BaseException], list[Any]]:
        at, made = cuda.receive(np.array([index])), list[Any]()
        run = cuda.driver().begin_run("cuda:0")
        before = run.enqueue([], lambda: made.extend(first.run([x, at]).outputs))
        run.enqueue([before], lambda: made.extend(then.run(made[:1]).outputs))
        return run.drain(), made

    failures, made = attempt(1)
    assert failures == [] and log == [("cuda", 0)]
    same(made[1].numpy(), X[[1]] * 2.0 + 1.0)
    (failure,) = attempt(77)[0]
    assert isinstance(failure, IndexError) and log == [("cuda", 0)]


def test_a_warning_is_told_once_though_it_is_looked_for_twice(cuda: CudaEngine):
    def f(a: Any, b: Any) -> Any:
        return note(a // b) + (a // (b + 1))

    zeros = np.where(K > 5, 0, 3)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        same(tn.jit(f, engine="cuda:0")(K, zeros), np.where(K > 5, 0, K // 3) + K // (zeros + 1))
    assert len(found) == 1 and log == [("cuda", 0)]


def test_an_executor_may_run_programs_on_its_own_engine(cuda: CudaEngine):
    wanted = (X + 1.0 + X * 2.0) * 2.0
    same(finished(lambda: tn.jit(lambda x: nested(x) * 2.0, engine="cuda:0")(X)), wanted)

    def parts(x: Any) -> Any:
        with tn.on("cuda:0"):
            a = nested(x)
        with tn.on("cpu:0"):
            b = x * 1.0
        return a * 2.0, b

    same(finished(lambda: tn.jit(parts)(X)), (wanted, X))


def test_threads_share_engine_and_program(cuda: CudaEngine):
    f = tn.jit(picked)
    wanted = [X[[k, k + 1]].max(axis=0) * 2.0 + X.max(axis=0) for k in range(4)]
    f(X, np.array([0, 1]))
    wrong: list[int] = []

    def repeat(k: int) -> None:
        for _ in range(10):
            c, _ = f(X, np.array([k, k + 1]))
            if c.tobytes() != wanted[k].tobytes():
                wrong.append(k)
            with pytest.raises(IndexError, match=f"indices contain {50 + k}"):
                f(X, np.array([0, 50 + k]))

    threads = [threading.Thread(target=repeat, args=(k,), daemon=True) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert wrong == [] and not any(t.is_alive() for t in threads)


def test_a_device_that_is_lost_beside_others(cuda: CudaEngine):
    def f(x: Any) -> Any:
        with tn.on("cuda:0"):
            a = softmax(x)
        with tn.on("cpu:0"):
            b = note(x * 2.0, tag="beside")
            return note(a + b, tag="after")

    jitted = tn.jit(f)
    jitted(X)
    device(cuda).fail, device(cuda).fail_late = "an illegal address", True
    with pytest.raises(BrokenEngineError, match="illegal address") as caught:
        jitted(X)
    assert not hasattr(caught.value, "__notes__")
    assert "an illegal address" in cuda.broken and log == ["beside", "after", "beside"]
