"""The column ``jvp`` of every row: tangents against central differences, those of a zero tangent, and second order.

Differences are taken of the row's NumPy reference in double precision, at two steps; where these disagree there is a
kink or a pole, and nothing is compared. Lower precisions are compared with the rule's own result in double precision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from tenferro.tracer.dims import leaf
from tenferro.tracer.op import Absent, Constant
from tenferro.tracer.ops import OPS
from tenferro.tracer.program import ArrayType, Params
from tests.running import outputs_of
from tests.samples import SAMPLES, Sample
from tests.table.agreement import bits
from tests.table.derived import Array, jvp_program, made, types_of
from tests.table.sizes import operand
from tests.table.test_infer import reference
from tests.turns import is_due
from tests.values import uniform

RULES = [name for name in SAMPLES if not isinstance(OPS[name].jvp, Constant | Absent)]
OF_SHARES = ("random_gamma",)
"""Drawn numbers that move so that the share of smaller ones stays: not as the drawn ones do, which jump where another
one is accepted, and are others in each dtype. ``tests/random/test_gamma_slopes`` compares them."""
ALONG_REFERENCES = [name for name in RULES if name not in OF_SHARES]
STEP = 1e-3


def differentiable(name: str) -> list[Sample]:
    """The samples of float or complex operands."""
    return [s for s in SAMPLES[name].samples if any(x.dtype.kind in "fc" for x in s.operands) and _has_result(name, s)]


def _has_result(name: str, sample: Sample) -> bool:
    return any(x.dtype.kind in "fc" for x in reference(name, sample))


def moderate(x: Array) -> Array:
    """Values that leave room for a step: others are not differentiated numerically."""
    if x.dtype.kind not in "fc":
        return x
    with np.errstate(all="ignore"):
        size = np.abs(x)
        return np.where((size == 0) | ((0.01 < size) & (size < 50)), x, np.array(1.25, x.dtype))


def directions(operands: tuple[Array, ...], seed: int) -> list[Array]:
    """A tangent for each operand that has one."""
    found = [uniform(x.shape, x.dtype, seed + k) for k, x in enumerate(operands) if x.dtype.kind in "fc"]
    return [np.asarray(np.clip(t, -2, 2) if t.dtype.kind == "f" else t) for t in found]


def tangents_of(name: str, sample: Sample, given: list[Array], order: int = 1) -> list[Array]:
    """The results' tangents, by the rule."""
    executable = made(jvp_program, name, types_of(sample.operands), Params(**sample.params), order)
    return outputs_of(executable, [*sample.operands, *given])


def moved(xs: Sequence[Array], directions: Sequence[Array], step: float) -> tuple[Array, ...]:
    """A step along the directions, of which there is one for each operand that varies. −0 stays −0 along 0."""
    where = iter(directions)

    def one(x: Array) -> Array:
        if x.dtype.kind not in "fc":
            return x
        t = next(where)
        return np.where(t == 0, x, x + step * t)

    return tuple(one(x) for x in xs)


def values(name: str, sample: Sample) -> list[Array]:
    """The reference's results that vary."""
    return [x for x in reference(name, sample) if x.dtype.kind in "fc"]


def differences(ends: Callable[[float], list[Array]]) -> list[tuple[Array, Array]]:
    """The limits of central differences at one step and at half of it (Richardson), and where there is one: where these
    agree, and where differences to either side do. ``ends``: from steps to values there."""
    at = [ends(k * STEP / 2) for k in (-2, -1, 0, 1, 2)]
    found = []
    with np.errstate(all="ignore"):
        for far_left, left, middle, right, far_right in zip(*at, strict=True):
            coarse, fine = (far_right - far_left) / (2 * STEP), (right - left) / STEP
            limit = np.asarray((4 * fine - coarse) / 3)
            bend = np.abs(left + right - 2 * middle) / STEP
            scale = 1 + np.abs(limit)
            found.append((limit, np.isfinite(limit) & (np.abs(fine - coarse) <= 1e-4 * scale) & (bend < 0.01 * scale)))
    return found


def wide_samples(name: str) -> Iterator[Sample]:
    """In double precision."""
    for sample in differentiable(name):
        kinds = {x.dtype.name for x in (*sample.operands, *reference(name, sample)) if x.dtype.kind in "fc"}
        if kinds <= {"float64", "complex128"}:
            yield replace(sample, operands=tuple(moderate(x) for x in sample.operands))


def alone(given: list[Array]) -> Iterator[list[Array]]:
    """Each tangent with zeros for the others."""
    for k in range(len(given)):
        yield [t if k == j else np.zeros_like(t) for j, t in enumerate(given)]


class Comparison:
    """Of a row's tangents with differences, element by element."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.compared = 0
        self.wrong: list[str] = []

    def add(self, sample: Sample, actual: Sequence[Array], limits: Sequence[tuple[Array, Array]], bound: float) -> None:
        for found, (expected, holds) in zip(actual, limits, strict=True):
            self.compared += int(holds.sum())
            with np.errstate(invalid="ignore"):
                off = holds & ~(np.abs(found - expected) <= bound * (1 + np.abs(expected)))
            if off.any():
                self.wrong.append(f"{sample}: {np.asarray(found)[off][0]!r}; differences give {expected[off][0]!r}")

    def check(self) -> None:
        assert not self.wrong, f"{len(self.wrong)}\n" + "\n".join(self.wrong[:8])
        assert self.compared >= 20, f"{self.name}: only {self.compared} elements have differences"


@pytest.mark.parametrize("name", ALONG_REFERENCES)
def test_tangents_are_differences(name: str) -> None:
    comparison = Comparison(name)
    for number, sample in enumerate(wide_samples(name)):
        for given in alone(directions(sample.operands, number)):

            def ends(step: float, sample: Sample = sample, given: list[Array] = given) -> list[Array]:
                return values(name, replace(sample, operands=moved(sample.operands, given, step)))

            comparison.add(sample, tangents_of(name, sample, given), differences(ends), 1e-6)
    comparison.check()


@pytest.mark.parametrize("name", ALONG_REFERENCES)
def test_second_order_is_differences_of_the_first(name: str) -> None:
    """Of the tangents, along tangents of operands and of tangents, each alone: half of them at one sample, the others
    at the next."""
    comparison = Comparison(name)
    samples = list(wide_samples(name))
    for number, sample in enumerate(samples):
        first = directions(sample.operands, number)
        turns = alone([*directions(sample.operands, number + 50), *directions(sample.operands, number + 60)])
        for both in [t for k, t in enumerate(turns) if len(samples) == 1 or is_due(number, k)]:
            along, turn = both[: len(first)], both[len(first) :]

            def ends(
                step: float, sample: Sample = sample, first: Sequence[Array] = first, along: list[Array] = along,
                turn: list[Array] = turn,
            ) -> list[Array]:  # fmt: skip
                there = replace(sample, operands=moved(sample.operands, along, step))
                return [np.asarray(t) for t in tangents_of(name, there, list(moved(first, turn, step)))]

            actual = tangents_of(name, sample, [*first, *along, *turn], 2)
            comparison.add(sample, actual, differences(ends), 1e-5)
    comparison.check()


NARROW = {"float16": "float64", "float32": "float64", "complex64": "complex128"}


def widened(sample: Sample) -> Sample:
    operands = tuple(x.astype(NARROW.get(x.dtype.name, x.dtype)) for x in sample.operands)
    params = {k: np.dtype(NARROW.get(v.name, v)) if isinstance(v, np.dtype) else v for k, v in sample.params.items()}
    return Sample(operands, params)


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("name", ALONG_REFERENCES)
def test_lower_precisions_agree_with_double(name: str, dtype: str) -> None:
    """Relative to the largest tangent there is room for the rounding of a few operations."""
    for number, sample in enumerate(differentiable(name)):
        if dtype not in {x.dtype.name for x in sample.operands}:
            continue
        sample = replace(sample, operands=tuple(moderate(x) for x in sample.operands))
        given = directions(sample.operands, number)
        wide = widened(sample)
        exact = tangents_of(name, wide, [t.astype(NARROW.get(t.dtype.name, t.dtype)) for t in given])
        found = tangents_of(name, sample, given)
        for actual, expected in zip(found, exact, strict=True):
            if actual.dtype.name not in NARROW:
                continue
            scale = 1 + np.abs(expected) + 0.2 * max(x.size for x in sample.operands) ** 0.5
            with np.errstate(all="ignore"):
                bound = 40 * float(np.finfo(actual.dtype).eps) * scale
                same = (
                    (np.abs(actual - expected) <= bound) | ~np.isfinite(expected) | (scale > np.finfo(actual.dtype).max)
                )
            assert same.all(), f"{sample}: {np.asarray(actual)[~same][0]!r}; {expected[~same][0]!r} is exact"


@pytest.mark.parametrize("name", RULES)
def test_zero_tangents_stay_zero(name: str) -> None:
    """Whatever the operands are: infinities and NaN too, of operands that a ``where`` leaves out."""
    for sample in differentiable(name):
        zeros = [np.zeros_like(x) for x in sample.operands if x.dtype.kind in "fc"]
        for tangent in tangents_of(name, sample, zeros):
            assert not np.asarray(tangent != 0).any(), f"{sample}: {tangent[tangent != 0]}"


SIZED = [name for name in RULES if any(np.dtype(d).kind in "fc" for v in SAMPLES[name].sized.variants for d in v)]


@pytest.mark.parametrize("name", [n for n in SIZED if n not in ("mask_select", "bincount", "numpy_call")])
def test_one_program_serves_every_size(name: str) -> None:
    """Of tangents: sizes as symbols give the bits of a program made for each."""
    sized = SAMPLES[name].sized
    dtypes = next(v for v in sized.variants if any(np.dtype(d).kind in "fc" for d in v))
    count = len(dtypes) + sum(np.dtype(d).kind in "fc" for d in dtypes)
    n, m = leaf("extent", count, 0), leaf("extent", count, 1)
    types = tuple(ArrayType(np.dtype(d), s) for d, s in zip(dtypes, sized.shapes(n, m), strict=True))
    carrier = ArrayType(np.dtype(np.bool_), (n, m))
    everywhere = made(jvp_program, name, types, Params(**sized.params(n, m)), 1, carrier)
    for a, b in ((sized.minimum, 3), (5, 4), (33, 7), (1, 1)):
        shapes = zip(sized.shapes(a, b), dtypes, strict=True)
        operands = tuple(operand(name, shape, dtype, b, k) for k, (shape, dtype) in enumerate(shapes))
        given = directions(operands, a)
        expected = tangents_of(name, Sample(operands, sized.params(a, b)), given)
        found = outputs_of(everywhere, [*operands, *given, np.zeros((a, b), bool)])
        for x, e in zip(found, expected, strict=True):
            assert bits(x, e) is None, f"n={a}, m={b}: {bits(x, e)}"
