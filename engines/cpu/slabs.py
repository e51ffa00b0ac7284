"""Copies of what an update leaves of its base: an AdoptStep in, the parts to copy and the regions that do it out."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import numpy as np

from tenferro.lowering.plan import AdoptStep
from tenferro.lowering.region import Access, Load, Region, Store, ViewStep as View
from tenferro.tracer.dims import Environment, evaluate_shape
from tenferro.tracer.program import Params


def _slice(starts: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[View, ...]:
    return (View("slice", Params(starts=starts, steps=(1,) * len(starts), sizes=sizes)),)


def kept_slabs(
    step: AdoptStep, shape: tuple[int, ...], env: Environment
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The parts of the base that the update leaves, as starts and sizes: the slabs round it; the whole for a box with
    gaps, and where the memory was to be taken over, since the update then reads the target itself."""
    p = step.instruction.params
    starts, steps, sizes = (evaluate_shape(p[k], env) for k in ("starts", "steps", "sizes"))
    if 0 in shape:
        return []
    if step.steal or any(s != 1 for s in steps) or 0 in sizes:
        return [((0,) * len(shape), shape)]
    slabs = []
    low, high = [0] * len(shape), list(shape)
    for axis in range(len(shape)):
        for first, stop in ((0, starts[axis]), (starts[axis] + sizes[axis], shape[axis])):
            if first < stop:
                slab_low, slab_high = list(low), list(high)
                slab_low[axis], slab_high[axis] = first, stop
                slabs.append((tuple(slab_low), tuple(b - a for a, b in zip(slab_low, slab_high, strict=True))))
        low[axis], high[axis] = starts[axis], starts[axis] + sizes[axis]
    return slabs


@cache
def copy_region(dtype: np.dtype[Any], rank: int) -> Region:
    """What the kernel of a plain copy is made from."""
    sizes = tuple(1 for _ in range(rank))
    return Region("copy", sizes, (), (Load(Access(0, ()), (), dtype, False),), (Store(1, 0),), ())


def slab_copy(prototype: Region, source: int, target: int, starts: tuple[int, ...], sizes: tuple[int, ...]) -> Region:
    """The copy of a part of ``source`` to the same place of ``target``, from a ``copy_region``."""
    views = _slice(starts, sizes)
    (load,) = prototype.nodes
    assert isinstance(load, Load)
    node = dataclasses.replace(load, access=Access(source, views))
    return dataclasses.replace(prototype, space=sizes, nodes=(node,), stores=(Store(target, 0, views),))
