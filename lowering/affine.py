"""Chains of views in normal form: slices, transposes and broadcasts go in, one map per axis comes out.

An ``Affine`` says, for each axis of an array, along which axis of the target it runs and which elements it meets there.
Windows enter it too: along a windowed axis the target's index may leave the array (a pad, a part of a concatenation).
"""

from __future__ import annotations

from collections.abc import Sequence

from tenferro.lowering.region import ViewStep, Window
from tenferro.tracer.dims import Extent, add, mul, sub
from tenferro.tracer.program import Params
from tenferro.tracer.records import dataclass, replace

DROPPED = -1
"""The target of an axis that has one element and no axis of the target."""

Shape = tuple[Extent, ...]


@dataclass(frozen=True, slots=True)
class AxisMap:
    """The elements ``start + step * j`` for ``0 <= j < size`` of the ``full`` ones along an axis; with a window, target
    index i meets j = ``window[0] + window[1] * i``, else j = i. ``fixed``: one element, repeated along the target."""

    target: int
    start: Extent
    step: int
    size: Extent
    full: Extent
    fixed: bool = False
    window: tuple[Extent, int] | None = None

    @property
    def index(self) -> tuple[Extent, int]:
        """(offset, step) of the array's index as a function of the target's."""
        if self.fixed or self.target == DROPPED:
            return self.start, 0
        if self.window is None:
            return self.start, self.step
        return add(self.start, mul(self.step, self.window[0])), self.step * self.window[1]

    def sliced(self, start: Extent, step: int, size: Extent) -> AxisMap:
        """Followed by a slice of the target's axis."""
        if self.fixed or self.target == DROPPED or (step == 1 and start == 0 and size == self.size):
            return self
        if self.window is not None:
            offset, stride = self.window
            return replace(self, window=(add(offset, mul(stride, start)), stride * step))
        return replace(self, start=add(self.start, mul(self.step, start)), step=self.step * step, size=size)

    def shifted(self, low: Extent, inner: AxisMap) -> AxisMap:
        """This map of a padded axis, seen from an array that begins at ``low`` in it.
        ``inner`` is that array's own map onto its target."""
        if inner.fixed:
            return replace(inner, target=self.target)
        offset, step = self.index
        return replace(inner, target=self.target, window=(sub(offset, low), step))


@dataclass(frozen=True, slots=True)
class Affine:
    """One map per axis of the array, onto a target of ``shape``."""

    axes: tuple[AxisMap, ...]
    shape: Shape

    @property
    def is_identity(self) -> bool:
        return len(self.shape) == len(self.axes) and all(
            m.target == k and not m.fixed and m.window is None and _whole(m) for k, m in enumerate(self.axes)
        )

    @property
    def drops(self) -> bool:
        return any(m.target == DROPPED for m in self.axes)

    def then(self, step: ViewStep) -> Affine | None:
        """Followed by one more view; None for a reshape that does more than drop or insert axes of size 1."""
        params = step.params
        match step.kind:
            case "slice":
                pieces = list(zip(params["starts"], params["steps"], params["sizes"], strict=True))
                axes = [m if m.target == DROPPED else m.sliced(*pieces[m.target]) for m in self.axes]
                return Affine(tuple(axes), params["sizes"])
            case "transpose":
                place = {a: k for k, a in enumerate(params["axes"])}
                place[DROPPED] = DROPPED
                axes = [replace(m, target=place[m.target]) for m in self.axes]
                return Affine(tuple(axes), tuple(self.shape[a] for a in params["axes"]))
            case "broadcast_to":
                shape, onto = params["shape"], params["axes"]
                return Affine(tuple([_stretched(m, onto, shape) for m in self.axes]), shape)
            case "reshape":
                moved = ones_moved(self.shape, params["shape"])
                if moved is None or any(m.window is not None and moved[m.target] == DROPPED for m in self.axes):
                    return None
                axes = [m if m.target == DROPPED else replace(m, target=moved[m.target]) for m in self.axes]
                return Affine(tuple(axes), params["shape"])

    def through(self, outer: Affine) -> Affine:
        """This map onto a middle array, followed by ``outer`` from the middle array onto the final target."""
        axes = [m if m.target == DROPPED else _composed(m, outer.axes[m.target]) for m in self.axes]
        return Affine(tuple(axes), outer.shape)

    def views(self) -> tuple[ViewStep, ...]:
        """slice, reshape that drops axes, transpose, broadcast_to: those of them that do anything. Repeated axes are
        left at size 1."""
        steps: list[ViewStep] = []
        if not all(_whole(m) for m in self.axes):
            starts, strides = tuple(m.start for m in self.axes), tuple(m.step for m in self.axes)
            steps.append(
                ViewStep("slice", Params(starts=starts, steps=strides, sizes=tuple(m.size for m in self.axes)))
            )
        kept = [m for m in self.axes if m.target != DROPPED]
        if len(kept) != len(self.axes):
            steps.append(ViewStep("reshape", Params(shape=tuple(m.size for m in kept))))
        order = sorted(range(len(kept)), key=lambda k: kept[k].target)
        if order != list(range(len(kept))):
            steps.append(ViewStep("transpose", Params(axes=tuple(order))))
        if len(self.shape) != len(kept):
            sizes = {m.target: m.size for m in kept}
            shape = tuple(sizes.get(a, 1) for a in range(len(self.shape)))
            steps.append(ViewStep("broadcast_to", Params(shape=shape, axes=tuple(sorted(sizes)))))
        return tuple(steps)

    def repeats(self) -> bool:
        """Whether an axis of the shape repeats one element, so that ``views`` leaves it at size 1."""
        sizes = {m.target: m.size for m in self.axes if m.target != DROPPED}
        return any(sizes.get(a, 1) != n for a, n in enumerate(self.shape))

    def windows(self) -> tuple[Window, ...]:
        found = [Window(m.target, m.window[0], m.window[1], m.size) for m in self.axes if m.window is not None]
        return tuple(sorted(found, key=lambda w: w.axis))


def ones_moved(old: Sequence[Extent], new: Sequence[Extent]) -> list[int] | None:
    """Where each axis of ``old`` goes in ``new`` if the shapes differ by axes of size 1 alone; an axis of size 1 goes
    along where ``new`` has one in its place, else it is dropped."""
    targets: list[int] = []
    k = 0
    for place, n in enumerate(old):
        while k < len(new) and new[k] == 1 and n != 1:
            k += 1
        if k < len(new) and new[k] == n and (n != 1 or _same_rest(old[place:], new[k:])):
            targets.append(k)
            k += 1
        elif n == 1:
            targets.append(DROPPED)
        else:
            return None
    return targets if all(n == 1 for n in new[k:]) else None


def _same_rest(old: Sequence[Extent], new: Sequence[Extent]) -> bool:
    return tuple(old) == tuple(new)


def _whole(m: AxisMap) -> bool:
    return m.start == 0 and m.step == 1 and m.size == m.full


def _stretched(m: AxisMap, onto: Sequence[int], shape: Sequence[Extent]) -> AxisMap:
    if m.target == DROPPED:
        return m
    target = onto[m.target]
    if m.window is None and m.size == 1 and shape[target] != 1:
        return replace(m, target=target, fixed=True)
    return replace(m, target=target)


def _composed(m: AxisMap, outer: AxisMap) -> AxisMap:
    if outer.target == DROPPED and outer.window is None:
        cut = m if m.fixed else m.sliced(outer.start, 1, 1)
        return replace(cut, target=DROPPED, fixed=False)
    if m.fixed:
        return replace(m, target=outer.target, fixed=True)
    if outer.fixed and m.window is None:
        # One element of the middle axis is repeated, which a slice may have picked.
        return replace(m.sliced(outer.start, outer.step, outer.size), target=outer.target, fixed=True)
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
    return Affine(tuple([AxisMap(k, 0, 1, n, n) for k, n in enumerate(shape)]), tuple(shape))


def onto(shape: Sequence[Extent], targets: Sequence[int], space: Sequence[Extent]) -> Affine:
    """Axis k of an array of ``shape`` runs along axis ``targets[k]`` of the space; the other ones repeat it."""
    return Affine(tuple([AxisMap(t, 0, 1, n, n) for t, n in zip(targets, shape, strict=True)]), tuple(space))
