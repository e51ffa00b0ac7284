"""The column ``batch`` of every row against a Python loop over lanes, bit for bit, for every choice of operands that
have lanes. Both run on the CPU engine."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

from tenferro.tracer.dims import leaf
from tenferro.tracer.errors import BatchError
from tenferro.tracer.op import Absent
from tenferro.tracer.ops import OPS
from tenferro.tracer.program import ArrayType, Params
from tests.running import outputs_of
from tests.samples import SAMPLES, Sample
from tests.table.agreement import bits, values
from tests.table.derived import Array, Flags, batch_program, made, types_of
from tests.table.sizes import operand
from tests.table.test_engines import made_for
from tests.turns import is_due

ROWS = [name for name in SAMPLES if not isinstance(OPS[name].batch, Absent)]
OWN_SIZES = {("mask_select", 1), ("mask_update", 1)}
"""Operands that may have no lanes: each lane's result would have a size of its own."""


def choices(count: int) -> list[Flags]:
    """Which operands have lanes: every choice of some."""
    if count > 4:
        return [(True,) * count, *(tuple(k == j for k in range(count)) for j in range(count))]
    return [flags for flags in product((True, False), repeat=count) if any(flags)]


def chosen(name: str) -> Iterator[Sample]:
    """Of each choice of dtypes the largest sample; of one, all."""
    groups: dict[tuple[Any, ...], list[Sample]] = {}
    for sample in SAMPLES[name].samples:
        static = [v for k, v in sample.params.items() if isinstance(v, np.dtype) or k in ("mode", "function")]
        groups.setdefault((*(x.dtype.str for x in sample.operands), *map(str, static)), []).append(sample)
    for number, group in enumerate(groups.values()):
        all_ = number % 5 == 0
        yield from group if all_ else [max(group, key=lambda s: sum(x.size for x in s.operands if x.size < 200))]


def with_lanes(sample: Sample, flags: Flags, size: int) -> list[Array]:
    """Every lane has the sample's values in another order, so that corners meet others."""
    found = []
    for x, mine in zip(sample.operands, flags, strict=True):
        rolled = [np.roll(x, 3 * k) if x.dtype != np.int64 else x for k in range(size)]
        found.append(np.array(rolled, x.dtype).reshape(size, *x.shape) if mine else x)
    return found


def lane(name: str, sample: Sample, operands: list[Array], flags: Flags, k: int) -> list[Array]:
    """The row itself on the operands of one lane."""
    mine = tuple(np.array(x[k]) if batched else x for x, batched in zip(operands, flags, strict=True))
    return outputs_of(made_for("cpu:0", name, sample), mine)


def differences(name: str, sample: Sample, flags: Flags, size: int) -> str | None:
    """What is wrong, or None."""
    compare = values if name in ("maximum", "minimum", "max", "min") else bits
    operands = with_lanes(sample, flags, size)
    executable = made(batch_program, name, types_of(sample.operands), Params(**sample.params), flags, size)
    found = outputs_of(executable, operands)
    each = [lane(name, sample, operands, flags, k) for k in range(size)]
    for number, actual in enumerate(found):
        for k in range(size):
            problem = compare(np.asarray(actual)[k], np.asarray(each[k][number]))
            if problem:
                return f"{sample}, lanes {flags}, lane {k}: {problem}"
    return None


def is_refused(name: str, flags: Flags) -> bool:
    return any(mine and (name, k) in OWN_SIZES for k, mine in enumerate(flags))


@pytest.mark.parametrize("name", ROWS)
def test_lanes_have_the_bits_of_a_loop(name: str) -> None:
    """Every sample with half of the choices of operands, and every choice with half of the samples."""
    wrong = []
    samples = list(chosen(name))
    for number, sample in enumerate(samples):
        for turn, flags in enumerate(choices(len(sample.operands))):
            is_alone = len(samples) == 1 or len(sample.operands) == 1
            if not is_refused(name, flags) and (is_alone or is_due(number, turn)):
                size = (3, 1)[number % 7 == 6]
                wrong.append(differences(name, sample, flags, size))
    problems = [p for p in wrong if p]
    assert not problems, f"{len(problems)} of {len(wrong)}\n" + "\n".join(problems[:10])


@pytest.mark.parametrize("name", ROWS)
def test_no_lanes(name: str) -> None:
    """A batch of size 0 has results of size 0."""
    sample = max(SAMPLES[name].samples, key=lambda s: sum(x.size for x in s.operands if x.size < 100))
    for flags in choices(len(sample.operands)):
        if not is_refused(name, flags):
            executable = made(batch_program, name, types_of(sample.operands), Params(**sample.params), flags, 0)
            for out in outputs_of(executable, with_lanes(sample, flags, 0)):
                assert out.shape[0] == 0


@pytest.mark.parametrize(("name", "place"), sorted(OWN_SIZES))
def test_sizes_of_their_own_are_refused(name: str, place: int) -> None:
    sample = SAMPLES[name].samples[0]
    flags = tuple(k == place for k in range(len(sample.operands)))
    with pytest.raises(BatchError, match="another size in each lane"):
        made(batch_program, name, types_of(sample.operands), Params(**sample.params), flags, 2)


SIZED = [
    name
    for name in ROWS
    if name not in ("mask_select", "bincount", "numpy_call") and len(SAMPLES[name].sized.variants[0])
]


@pytest.mark.parametrize("name", SIZED)
def test_one_batched_program_serves_every_size(name: str) -> None:
    """Sizes of lanes and their number as symbols: the bits of a program made for each."""
    sized = SAMPLES[name].sized
    dtypes = sized.variants[0]
    n, m, size = (leaf("extent", len(dtypes), axis) for axis in range(3))
    types = tuple(ArrayType(np.dtype(d), s) for d, s in zip(dtypes, sized.shapes(n, m), strict=True))
    for flags in choices(len(dtypes)):
        if is_refused(name, flags):
            continue
        carrier = ArrayType(np.dtype(np.bool_), (n, m, size))
        symbolic = made(batch_program, name, types, Params(**sized.params(n, m)), flags, size, carrier)
        for a, b, c in ((sized.minimum, 3, 2), (5, 4, 1), (33, 7, 3)):
            fixed = [
                operand(name, shape, dtype, b, k)
                for k, (shape, dtype) in enumerate(zip(sized.shapes(a, b), dtypes, strict=True))
            ]
            sample = Sample(tuple(fixed), sized.params(a, b))
            operands = with_lanes(sample, flags, c)
            fresh = made(batch_program, name, types_of(fixed), Params(**sample.params), flags, c)
            expected = outputs_of(fresh, operands)
            for x, e in zip(outputs_of(symbolic, [*operands, np.zeros((a, b, c), bool)]), expected, strict=True):
                assert bits(x, e) is None, f"n={a}, m={b}, lanes={c}, {flags}: {bits(x, e)}"
