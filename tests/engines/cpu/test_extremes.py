"""Largest and smallest elements and their places: every dtype, NaN of both signs, signed zeros, infinities, ties, rows
of every schedule."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.cpu.engine import CpuEngine
from tenferro.engines.cpu.toolchain import host_target
from tenferro.runtime import Runtime, signature_of, target_of

pytestmark = pytest.mark.filterwarnings("ignore::tenferro.tracer.errors.RecompileWarning")
NAMES = ("max", "min", "argmax", "argmin")
FLOATS = ("f2", "f4", "f8")
LENGTHS = (1, 2, 31, 33, 4096, 4097, 70000)
rng = np.random.default_rng(0)


def jitted(name: str, axis: int | None) -> Callable[[np.ndarray], np.ndarray]:
    function = getattr(np, name)
    return tn.jit(lambda x: function(x, axis=axis))


whole = {name: jitted(name, None) for name in NAMES}
rows = {name: jitted(name, 1) for name in NAMES}


def same(found: np.ndarray, wanted: np.ndarray) -> bool:
    return found.dtype == wanted.dtype and np.array_equal(found, wanted, equal_nan=wanted.dtype.kind == "f")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", (*FLOATS, "?", "i1", "u1", "i4", "i8", "u8"))
def test_numbers(name, dtype):
    for n in LENGTHS:
        x = (rng.standard_normal(n) * 3).astype(dtype) if dtype != "?" else rng.random(n) < 0.01
        assert same(whole[name](x), np.asarray(getattr(np, name)(x))[()])
        assert same(whole[name](x[::-1]), np.asarray(getattr(np, name)(x[::-1]))[()])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_special_values(name, dtype):
    """A NaN wins whatever its sign, and the first one has the place; zeros of both signs tie."""
    special = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0], dtype)
    for picked in ([0], [1], [0, 1], [2], [3], [2, 3], [4], [5], [4, 5], [1, 2, 3], [3, 5], [2, 4]):
        for n in LENGTHS:
            for filled in (False, True):
                x = rng.choice(special[picked], n) if filled else (rng.standard_normal(n)).astype(dtype)
                if not filled:
                    places = rng.integers(0, n, 1 + n // 1000)
                    x[places] = rng.choice(special[picked], len(places))
                assert same(whole[name](x), np.asarray(getattr(np, name)(x))[()]), (picked, n, filled)


@pytest.mark.parametrize("dtype", FLOATS)
def test_zeros_have_an_order(dtype):
    """0.0 is above -0.0, wherever it stands."""
    for n in LENGTHS[1:]:
        x = np.full(n, -0.0, dtype)
        assert np.signbit(whole["max"](x)) and np.signbit(whole["min"](x))
        x[n // 2] = 0.0
        assert not np.signbit(whole["max"](x)) and np.signbit(whole["min"](x))
        assert whole["argmax"](x) == whole["argmin"](x) == 0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ("f4", "f8", "i4"))
@pytest.mark.parametrize("shape", ((3, 5), (40, 7), (20, 300), (3, 9000), (5000, 2), (2, 4096), (9, 5000)), ids=str)
def test_rows(name, dtype, shape):
    """Of one chunk and of many, contiguous or not, with a NaN in some."""
    x = (rng.standard_normal(shape) * 3).astype(dtype)
    if dtype[0] == "f":
        x[shape[0] // 2, shape[1] // 2] = -np.nan
    for y in (x, np.asfortranarray(x), x[:, ::-1], np.repeat(x, 2, 1)[:, ::2]):
        assert same(rows[name](y), getattr(np, name)(y, axis=1))


def test_a_place_is_that_of_computed_values():
    """Values are computed again where the best one is sought, with all that they need."""

    @tn.jit
    def several(x, w):
        e = np.exp(x - x.max(axis=1, keepdims=True))
        p = e / e.sum(axis=1, keepdims=True)
        return np.argmax(p, axis=1), np.argmin(x * w, axis=1), np.argmax(x[:, ::-1] + 1, axis=1), p

    x, w = rng.standard_normal((6, 9000)).astype("f4"), rng.standard_normal(9000).astype("f4")
    places, least, last, p = several(x, w)
    np.testing.assert_array_equal(places, np.argmax(p, axis=1))
    np.testing.assert_array_equal(least, np.argmin(x * w, axis=1))
    np.testing.assert_array_equal(last, np.argmax(x[:, ::-1], axis=1))


def test_in_place_of_what_is_reduced():
    """A donated argument is overwritten only when nothing seeks in it any more."""
    f = tn.jit(lambda x: (np.argmax(np.exp(x)), np.exp(x) * 2), donate_argnums=0)
    x = rng.standard_normal(50000)
    wanted = np.argmax(x), np.exp(x) * 2
    place, doubled = f(x.copy())
    assert place == wanted[0]
    np.testing.assert_allclose(doubled, wanted[1], rtol=1e-14)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bits", (128, 256))
def test_no_machine_shows(name, bits):
    target = dataclasses.replace(host_target(), vector_bits=bits, features=host_target().features + ",-avx512f")
    engine = CpuEngine(7, target=target)
    runtime = Runtime.builder().register_engine(engine).build()
    for dtype in ("f4", "f8", "i8"):
        x = (rng.standard_normal(70000) * 100).astype(dtype)
        program = tn.jit(lambda x: getattr(np, name)(x)).trace(x)
        prepared = runtime.prepare(program, signature_of(program), [target_of(engine)])
        assert runtime.run([engine], prepared, [x]).outputs[0] == getattr(np, name)(x)
        for n in (1, 2, 5):
            with tn.threads(n):
                assert whole[name](x) == getattr(np, name)(x)
