"""Copies in parts. An AdoptStep in, the parts of its base that the update leaves and the regions that copy them out; a
region that joins arrays and does no more in, the region that copies each of them out.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import numpy as np

from tenferro.lowering.plan import AdoptStep
from tenferro.lowering.region import Access, Apply, Load, Region, Store, Valid, ViewStep as View, Window
from tenferro.tracer.dims import Environment, Extent, add, evaluate_shape, sub
from tenferro.tracer.ops import pointwise
from tenferro.tracer.program import Params


def _slice(starts: tuple[Extent, ...], sizes: tuple[Extent, ...]) -> tuple[View, ...]:
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


def with_prototypes(region: Region, prototype: Region) -> list[tuple[Region, Region]]:
    """A region as regions to launch, each with what its kernel is made from: one for each array that it joins along the
    first axis, where it does no more: each lies in the result as it is."""
    loads = _joined(region)
    if not loads:
        return [(region, prototype)]
    ((store,), (_, *rest)) = region.stores, region.space
    copy = copy_region(loads[0].dtype, len(region.space))
    found: list[tuple[Region, Region]] = []
    start: Extent = 0
    for load in loads:
        (window,) = load.windows
        space = (window.size, *rest)
        target = dataclasses.replace(store, node=0, views=_slice((start, *(0 for _ in rest)), space))
        node = dataclasses.replace(load, windows=())
        found.append((dataclasses.replace(copy, space=space, nodes=(node,), stores=(target,)), copy))
        start = add(start, window.size)
    return found


def _joined(region: Region) -> list[Load]:
    """The loads of a region that joins arrays along the first axis, in order; none of others."""
    if region.row_axes or len(region.stores) != 1 or region.stores[0].views or region.stores[0].over is not None:
        return []
    found: list[Load] = []
    end: Extent = 0
    rest: int | None = region.stores[0].node
    while rest is not None:
        load, rest = _first_part(region, rest)
        match load:
            case Load(windows=(Window(axis=0, step=1, offset=offset, size=size),)) if offset == sub(0, end):
                found.append(load)
                end = add(end, size)
            case _:
                return []
    return found if len(found) > 1 and end == region.space[0] else []


def _first_part(region: Region, number: int) -> tuple[Load | None, int | None]:
    """What a node gives where that is an element of its first array, and the node that gives the others."""
    match region.nodes[number]:
        case Load() as load:
            return load, None
        case Apply(op=pointwise.where, args=(valid, first, rest)):
            one, there = region.nodes[first], region.nodes[valid]
            if isinstance(one, Load) and isinstance(there, Valid) and one.windows == there.windows:
                return one, rest
    return None, None
