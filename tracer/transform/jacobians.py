"""Jacobians of linear maps on a tape: a map in, its matrix out, a block for each leaf of the results and of the
arguments.

The map is pushed or pulled once, in lanes: one lane for each element of a leaf.
"""

from __future__ import annotations

from collections.abc import Callable

from tenferro.tracer.derivation import Derivation
from tenferro.tracer.dims import product
from tenferro.tracer.program import ArrayType, Operand
from tenferro.tracer.trace import Trace
from tenferro.tracer.transform.gradients import Linear, Tangents
from tenferro.tracer.transform.inputs import Opened
from tenferro.tracer.transform.linear import has_tangent
from tenferro.tracer.transform.rules import InLanes

Blocks = list[list[Operand]]
"""By leaf of the results, by leaf of the arguments: ``(*result.shape, *argument.shape)``."""


def forward(linear: Linear) -> Blocks:
    """The matrix by columns: the images of unit tangents."""
    columns = _images(linear.trace, linear.arguments, linear.results, linear.push)
    b = Derivation(linear.trace)
    blocks: Blocks = []
    for j, y in enumerate(linear.results.leaves):
        shape, row = y.operand.type.shape, list[Operand]()
        for x, images in zip(linear.arguments.leaves, columns, strict=True):
            mine = images[j]
            rank = len(shape)
            moved = b.permuted(mine, [*range(1, rank + 1), 0])
            row.append(b.reshaped(moved, (*shape, *x.operand.type.shape)))
        blocks.append(row)
    return blocks


def reverse(linear: Linear) -> Blocks:
    """The matrix by rows: what unit cotangents are pulled back to."""
    rows = _images(linear.trace, linear.results, linear.arguments, linear.pull)
    b = Derivation(linear.trace)
    return [
        [
            b.reshaped(image, (*y.operand.type.shape, *x.operand.type.shape))
            for image, x in zip(images, linear.arguments.leaves, strict=True)
        ]
        for y, images in zip(linear.results.leaves, rows, strict=True)
    ]


def _images(trace: Trace, of: Opened, to: Opened, run: Callable[[Tangents], list[Operand | None]]) -> Blocks:
    """For each leaf of ``of`` the images of its unit elements, stacked along a leading axis, in each leaf of ``to``."""
    b = Derivation(trace)
    found: Blocks = []
    for number, leaf in enumerate(of.leaves):
        type_ = leaf.operand.type
        size = product(type_.shape)
        lanes = InLanes(trace, size)

        def one(given: list[Operand | None], number: int = number) -> Tangents:
            tangents: list[Operand | None] = [None] * len(of.leaves)
            tangents[number] = given[0]
            return run(tangents)

        unit = _unit(b, type_) if has_tangent(type_.dtype) else None
        images = lanes.run([unit], [True], one)
        types = [ArrayType(x.operand.type.dtype, (size, *x.operand.type.shape)) for x in to.leaves]
        found.append(
            [b.zeros(t) if y is None else lanes.lanes.full(y) for y, t in zip(images, types, strict=True)]
        )  # fmt: skip
    return found


def _unit(b: Derivation, type_: ArrayType) -> Operand:
    """Unit arrays of a type, one for each element, along a leading axis."""
    size = product(type_.shape)
    order, other = (b.iota(shape=(size, size), axis=axis) for axis in (0, 1))
    ones = b.convert(b.equal(order, other), type_.dtype)
    return b.reshaped(ones, (size, *type_.shape))
