"""``tn.profile`` of a GPU that is the CPU: programs as a whole, their work done; kernels compiled; transfers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.cuda.engine import CudaEngine
from tests.cuda.shim.compile import missing
from tests.cuda.shim_device import device, registered, shim_engine

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")

X = np.arange(300.0)


@pytest.fixture(params=["late", "eager"])
def cuda(request: pytest.FixtureRequest) -> Iterator[CudaEngine]:
    """``cuda:0`` in the default runtime; a late one works when it is waited for."""
    engine = shim_engine(eager=request.param == "eager")
    with registered(engine):
        yield engine
    assert device(engine).faults == []


def test_a_program_is_recorded_as_a_whole(cuda: CudaEngine):
    a = tn.asarray(X, engine="cuda:0")
    f = tn.jit(lambda a: a * 3.0 - 1.0)
    f(a)
    done: list[int] = []
    with tn.profile() as p:
        b = f(a)
        done += [cuda.stream.done, cuda.stream.submitted]  # type: ignore[attr-defined]
    assert done[0] == done[1], "the work was waited for"
    (run,) = p.events
    assert run is p.runs[0] and p.runs[0].is_whole
    assert (p.runs[0].engine, p.runs[0].read, p.runs[0].written) == ("cuda:0", X.nbytes, X.nbytes)
    assert "<lambda> on cuda:0" in str(p)
    np.testing.assert_array_equal(np.asarray(b), X * 3.0 - 1.0)


def test_kernels_that_are_compiled(cuda: CudaEngine):
    @tn.jit(engine="cuda:0")
    def shifted(a):
        return a * 3.25 - 8.0

    with tn.profile() as p:
        shifted(X)
        shifted(X)
    (made,) = p.compiles
    assert (made.program, made.level, made.source) == ("shifted", -1, "compiled") and made.kernel.endswith("r0")
    there, back = p.transfers[:2]
    assert (there.program, there.source, there.destination, there.bytes) == ("shifted", "cpu:0", "cuda:0", X.nbytes)
    assert (back.source, back.destination, back.bytes) == ("cuda:0", "cpu:0", X.nbytes)
    assert len(p.transfers) == 4


def test_arrays_that_go_there_and_back(cuda: CudaEngine):
    with tn.profile() as p:
        a = tn.asarray(X, engine="cuda:0")
        b = a.to("cpu:0")
        c = b.to("cuda:0")
        np.asarray(c)
    found = [(e.source, e.destination, e.reason) for e in p.transfers]
    assert found == [
        ("host", "cuda:0", "asarray"), ("cuda:0", "host", "read on the host"), ("cpu:0", "cuda:0", "to"),
        ("cuda:0", "host", "read on the host"),
    ]  # fmt: skip
    assert all(e.bytes == X.nbytes and e.line is not None and e.line.file == __file__ for e in p.transfers)


def test_an_error_found_on_the_device(cuda: CudaEngine):
    f = tn.jit(lambda a, k: a[k] + 1.0, engine="cuda:0")
    with pytest.raises(IndexError), tn.profile() as p:
        f(X, np.array([0, 300]))
    assert any(r.engine == "cuda:0" for r in p.runs)
