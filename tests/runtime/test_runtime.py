"""The runtime below ``@jit``: registration, epochs, preparation, runs, and their refusals."""

from __future__ import annotations

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.reference import ReferenceEngine
from tenferro.runtime import EngineTarget, InputType, Runtime, signature_of, target_of
from tenferro.tracer.errors import DtypeError, LoweringError, ShapeError


@pytest.fixture
def program():
    return tn.jit(lambda x, y: x * 2 + y).trace(np.ones(2), np.ones(2))


@pytest.fixture
def setup():
    engine = ReferenceEngine()
    return Runtime.builder().register_engine(engine).build(), engine


def test_prepare_and_run(program, setup):
    runtime, engine = setup
    prepared = runtime.prepare(program, signature_of(program), [target_of(engine)])
    result = runtime.run([engine], prepared, [np.arange(3.0), np.ones(3)])
    assert result.outputs[0].tolist() == [1, 3, 5]
    assert runtime.prepare(program, signature_of(program), [target_of(engine)]) is prepared
    assert runtime.cache_stats().hits == 1


def test_equal_programs_share_a_preparation(setup):
    runtime, engine = setup
    a, b = (tn.jit(lambda x: x + 1).trace(np.ones(2)) for _ in range(2))
    assert a is not b
    targets = [target_of(engine)]
    assert runtime.prepare(a, signature_of(a), targets) is runtime.prepare(b, signature_of(b), targets)


def test_stale_after_reconfiguration(program, setup):
    runtime, engine = setup
    prepared = runtime.prepare(program, signature_of(program), [target_of(engine)])
    assert runtime.reconfigure(lambda engines: None) == 1
    assert runtime.reconfigure(lambda c: c.register_engine(ReferenceEngine(1))) == 2
    with pytest.raises(LoweringError, match="configuration 1; configuration 2 is in force"):
        runtime.run([engine], prepared, [np.ones(2), np.ones(2)])
    again = runtime.prepare(program, signature_of(program), [target_of(engine)])
    assert runtime.run([engine], again, [np.ones(2), np.ones(2)]).outputs[0].tolist() == [3, 3]


def test_reconfiguration_fails_whole(setup):
    runtime, engine = setup

    def fail(configuration):
        configuration.engines.clear()
        raise KeyError("mine")

    with pytest.raises(KeyError):
        runtime.reconfigure(fail)
    with pytest.raises(ValueError, match="at least one"):
        runtime.reconfigure(lambda c: c.engines.clear())
    assert runtime.epoch == 1 and runtime.engines() == (engine,)


def test_refusals(program, setup):
    runtime, engine = setup
    signature, target = signature_of(program), target_of(engine)
    with pytest.raises(LoweringError, match="'cpu:7' is not registered"):
        runtime.prepare(program, signature, [EngineTarget("cpu:7", ReferenceEngine)])
    with pytest.raises(LoweringError, match="each once"):
        runtime.prepare(program, signature, [target, target])
    with pytest.raises(ShapeError, match="1 inputs"):
        runtime.prepare(program, signature[:1], [target])
    with pytest.raises(DtypeError, match="float32"):
        runtime.prepare(program, (InputType(np.dtype("f4"), 1), signature[1]), [target])
    with pytest.raises(ShapeError, match="rank 3"):
        runtime.prepare(program, (InputType(np.dtype("f8"), 3), signature[1]), [target])
    prepared = runtime.prepare(program, signature, [target])
    with pytest.raises(LoweringError, match="reference:5"):
        runtime.run([ReferenceEngine(5)], prepared, [np.ones(1), np.ones(1)])
    other = Runtime.builder().register_engine(engine).build()
    with pytest.raises(LoweringError, match="prepared by runtime"):
        other.run([engine], prepared, [np.ones(1), np.ones(1)])
    with pytest.raises(ValueError, match="registered already"):
        Runtime.builder().register_engine(engine).register_engine(ReferenceEngine())


def test_broken_engine_is_refused(program, setup):
    runtime, engine = setup
    prepared = runtime.prepare(program, signature_of(program), [target_of(engine)])
    engine.broken = "a test"
    with pytest.raises(LoweringError, match="broken"):
        runtime.run([engine], prepared, [np.ones(1), np.ones(1)])


def test_default_runtime_has_one_engine():
    assert len(tn.list_engines()) >= 1
    assert tn.default_runtime() is tn.default_runtime()
