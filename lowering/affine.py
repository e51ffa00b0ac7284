"""Chains of views in normal form: slices, transposes and broadcasts go in, one map per axis comes out.

An ``Affine`` says, for each axis of an array, along which axis of the target it runs and which elements it meets there.
Windows enter it too: along a windowed axis the target's index may leave the array (a pad, a part of a concatenation).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tenferro.lowering.region import ViewStep, Window
from tenferro.tracer.dims import Extent, add, mul, sub
from tenferro.tracer.program import Params


@dataclass(frozen=True, slots=True)
class AxisMap:
    """The array's elements ``start + step * j`` for ``0 <= j < size``; with a window, target index i meets
    j = ``window[0] + window[1] * i``, else j = i. ``fixed``: the one element is repeated along the target's axis."""

    target: int
    start: Extent
    step: int
    size: Extent
    full: Extent
    fixed: bool = False
    window: tuple[Extent, int] | None = None

    def sliced(self, start: Extent, step: int, size: Extent) -> AxisMap:
        """Followed by a slice of the target's axis."""
        if self.fixed:
            return self
        if self.window is not None:
            offset, stride = self.window
            return replace(self, window=(add(offset, mul(stride, start)), stride * step))
        if self.start == 0 and self.step == 1 and start == 0 and step == 1:
            return replace(self, size=size)
        return replace(self, start=add(self.start, mul(self.step, start)), step=self.step * step, size=size)

    def shifted(self, low: Extent, inner: AxisMap) -> AxisMap:
        """This map of a padded axis, seen from an array that begins at ``low`` in it.
        ``inner`` is that array's own map onto its target."""
        if inner.fixed:
            return replace(inner, target=self.target)
        offset, step = self.start, 0 if self.fixed else self.step
        if self.window is not None:
            offset, step = add(self.start, mul(self.step, self.window[0])), self.step * self.window[1]
        return replace(inner, target=self.target, window=(sub(offset, low), step))


@dataclass(frozen=True, slots=True)
class Affine:
    """One map per axis of the array, and the rank of the target."""

    axes: tuple[AxisMap, ...]
    rank: int

    @property
    def is_identity(self) -> bool:
        return self.rank == len(self.axes) and all(
            m.target == k and not m.fixed and m.window is None and _whole(m) for k, m in enumerate(self.axes)
        )

    def then(self, step: ViewStep) -> Affine:
        """Followed by one more view (not a reshape)."""
        params = step.params
        match step.kind:
            case "slice":
                pieces = list(zip(params["starts"], params["steps"], params["sizes"], strict=True))
                return replace(self, axes=tuple(m.sliced(*pieces[m.target]) for m in self.axes))
            case "transpose":
                place = {a: k for k, a in enumerate(params["axes"])}
                return replace(self, axes=tuple(replace(m, target=place[m.target]) for m in self.axes))
            case "broadcast_to":
                shape, axes = params["shape"], params["axes"]
                return Affine(tuple(_stretched(m, axes[m.target], shape) for m in self.axes), len(shape))
            case "reshape":
                raise ValueError("a reshape is no affine view")

    def through(self, outer: Affine) -> Affine:
        """This map onto a middle array, followed by ``outer`` from the middle array onto the final target."""
        return Affine(tuple(_composed(m, outer.axes[m.target]) for m in self.axes), outer.rank)

    def views(self) -> tuple[ViewStep, ...]:
        """slice, transpose, broadcast_to: those of them that do anything. Repeated axes are left at size 1."""
        steps: list[ViewStep] = []
        if not all(_whole(m) for m in self.axes):
            columns = [(m.start, m.step, m.size) for m in self.axes]
            starts, strides, counts = zip(*columns, strict=True)
            steps.append(ViewStep("slice", Params(starts=starts, steps=strides, sizes=counts)))
        order = sorted(range(len(self.axes)), key=lambda k: self.axes[k].target)
        if order != list(range(len(self.axes))):
            steps.append(ViewStep("transpose", Params(axes=tuple(order))))
        if self.rank != len(self.axes):
            sizes = {self.axes[k].target: self.axes[k].size for k in order}
            shape = tuple(sizes.get(a, 1) for a in range(self.rank))
            steps.append(ViewStep("broadcast_to", Params(shape=shape, axes=tuple(self.axes[k].target for k in order))))
        return tuple(steps)

    def windows(self) -> tuple[Window, ...]:
        found = [Window(m.target, m.window[0], m.window[1], m.size) for m in self.axes if m.window is not None]
        return tuple(sorted(found, key=lambda w: w.axis))


def _whole(m: AxisMap) -> bool:
    return m.start == 0 and m.step == 1 and m.size == m.full


def _stretched(m: AxisMap, target: int, shape: Sequence[Extent]) -> AxisMap:
    if m.window is None and m.size == 1 and shape[target] != 1:
        return replace(m, target=target, fixed=True)
    return replace(m, target=target)


def _composed(m: AxisMap, outer: AxisMap) -> AxisMap:
    if m.fixed or (outer.fixed and m.window is None):
        # A repeated middle axis has one element, so this axis has one too.
        return replace(m, target=outer.target, fixed=True)
    if outer.fixed:
        return replace(m, target=outer.target, window=(m.window[0], 0) if m.window else None)
    cut = replace(m.sliced(outer.start, outer.step, outer.size), target=outer.target)
    if outer.window is None:
        return cut
    if cut.window is None:
        return replace(cut, window=outer.window)
    offset, stride = cut.window
    start, step = outer.window
    return replace(cut, window=(add(offset, mul(stride, start)), stride * step))


def identity(shape: Sequence[Extent]) -> Affine:
    return Affine(tuple(AxisMap(k, 0, 1, n, n) for k, n in enumerate(shape)), len(shape))


def affine(shape: Sequence[Extent], views: Sequence[ViewStep]) -> Affine:
    """The normal form of a chain of views without reshapes over an array of ``shape``."""
    found = identity(shape)
    for step in views:
        found = found.then(step)
    return found
