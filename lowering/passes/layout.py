"""Simplify layout: views of views become one view, views that do nothing go, broadcasts move behind what they feed.

``f(broadcast(a), broadcast(b))`` is ``broadcast(f(a, b))``: the same bits from less work. A scalar that was broadcast
for an operation with other operands is used as the scalar it is.
"""

from __future__ import annotations

from tenferro.lowering.affine import DROPPED, ones_moved
from tenferro.lowering.passes.rewrite import Rewriter, pinned
from tenferro.tracer.dims import add, mul
from tenferro.tracer.op import Pointwise, View
from tenferro.tracer.ops import layout
from tenferro.tracer.program import Operand, Operation, SemanticProgram


def simplify_layout(program: SemanticProgram) -> SemanticProgram:
    if not any(isinstance(o.op.form, View) for o in program.operations):
        return program
    rewriter = Rewriter(program)
    kept = pinned(program)
    for operation in program.operations:
        found: Operand | None = None
        match operation.op.form:
            case View() if operation.outputs[0].id not in kept:
                found = _view(rewriter, operation)
            case Pointwise():
                found = _pointwise(rewriter, operation)
            case _:
                pass
        if found is None:
            rewriter.copy(operation)
        else:
            rewriter.replace(operation, found)
    return rewriter.finish()


def _view(rewriter: Rewriter, operation: Operation) -> Operand | None:
    (x,) = rewriter.operands(operation)
    shape = operation.outputs[0].type.shape
    if _does_nothing(operation, x):
        return x
    inner = rewriter.made_by(x)
    if inner is not None and isinstance(inner.op.form, View):
        (source,) = inner.inputs
        if source.type.rank == 0 and inner.op is layout.broadcast_to:
            # All elements of x are equal, so any view of it is a broadcast.
            return rewriter.emit(layout.broadcast_to, (source,), operation.line, shape=shape, axes=())
        if inner.op is operation.op:
            return _twice(rewriter, operation, inner)
        if operation.op is layout.reshape and _only_inserts_ones(inner):
            return (
                source
                if source.type.shape == shape
                else rewriter.emit(layout.reshape, (source,), operation.line, shape=shape)
            )
    if operation.op is layout.reshape:
        moved = ones_moved(x.type.shape, shape)
        if moved is not None and DROPPED not in moved:
            return rewriter.emit(layout.broadcast_to, (x,), operation.line, shape=shape, axes=tuple(moved))
    return None


def _does_nothing(operation: Operation, x: Operand) -> bool:
    if x.type.shape != operation.outputs[0].type.shape:
        return False
    params = operation.params
    match operation.op.name:
        case "transpose":
            return bool(params["axes"] == tuple(range(x.type.rank)))
        case "slice":
            return all(s == 0 for s in params["starts"]) and all(s == 1 for s in params["steps"])
        case _:
            return True


def _only_inserts_ones(operation: Operation) -> bool:
    """Whether a broadcast repeats nothing."""
    if operation.op is not layout.broadcast_to:
        return False
    sizes = dict(zip(operation.params["axes"], operation.inputs[0].type.shape, strict=True))
    return all(n == sizes.get(a, 1) for a, n in enumerate(operation.params["shape"]))


def _twice(rewriter: Rewriter, outer: Operation, inner: Operation) -> Operand:
    """One view for two of a kind."""
    (source,), line, first, then = inner.inputs, outer.line, inner.params, outer.params
    shape = outer.outputs[0].type.shape
    match outer.op.name:
        case "transpose":
            axes = tuple(first["axes"][a] for a in then["axes"])
            if axes == tuple(range(len(axes))):
                return source
            return rewriter.emit(layout.transpose, (source,), line, axes=axes)
        case "broadcast_to":
            axes = tuple(then["axes"][a] for a in first["axes"])
            return rewriter.emit(layout.broadcast_to, (source,), line, shape=shape, axes=axes)
        case "slice":
            columns = zip(first["starts"], first["steps"], then["starts"], then["steps"], strict=True)
            pieces = [(add(a, mul(s, b)), s * t) for a, s, b, t in columns]
            starts, steps = tuple(p[0] for p in pieces), tuple(p[1] for p in pieces)
            if shape == source.type.shape and not any(starts) and all(s == 1 for s in steps):
                return source
            return rewriter.emit(layout.slice_, (source,), line, starts=starts, steps=steps, sizes=then["sizes"])
        case _:
            if shape == source.type.shape:
                return source
            return rewriter.emit(layout.reshape, (source,), line, shape=shape)


def _pointwise(rewriter: Rewriter, operation: Operation) -> Operand | None:
    """Move broadcasts of operands behind the operation."""
    inputs = rewriter.operands(operation)
    makers = [rewriter.made_by(x) for x in inputs]
    if not any(m is not None and m.op is layout.broadcast_to for m in makers):
        return None
    scalars = [_scalar_behind(x, m) for x, m in zip(inputs, makers, strict=True)]
    shaped = [k for k, s in enumerate(scalars) if s is None]
    line, params, shape = operation.line, operation.params, operation.outputs[0].type.shape
    if not shaped:
        small = rewriter.emit(operation.op, [s for s in scalars if s is not None], line, **params)
        return small if not shape else rewriter.emit(layout.broadcast_to, (small,), line, shape=shape, axes=())
    first = makers[shaped[0]]
    if first is not None and all(_alike(first, makers[k]) for k in shaped):
        sources = [x if s is None else s for x, s in zip(_sources(inputs, makers), scalars, strict=True)]
        small = rewriter.emit(operation.op, sources, line, **params)
        return rewriter.emit(layout.broadcast_to, (small,), line, **first.params)
    operands = [x if s is None else s for x, s in zip(inputs, scalars, strict=True)]
    if all(a is b for a, b in zip(operands, inputs, strict=True)):
        return None
    return rewriter.emit(operation.op, operands, line, **params)


def _scalar_behind(x: Operand, maker: Operation | None) -> Operand | None:
    """The scalar that ``x`` is, or is a broadcast of."""
    if x.type.rank == 0:
        return x
    if maker is not None and maker.op is layout.broadcast_to and maker.inputs[0].type.rank == 0:
        return maker.inputs[0]
    return None


def _alike(first: Operation, other: Operation | None) -> bool:
    """Two broadcasts of the same kind, that repeat something."""
    return (
        other is not None
        and first.op is layout.broadcast_to
        and other.op is layout.broadcast_to
        and first.params == other.params
        and first.inputs[0].type.shape == other.inputs[0].type.shape
        and not _only_inserts_ones(first)
    )


def _sources(inputs: tuple[Operand, ...], makers: list[Operation | None]) -> list[Operand]:
    found: list[Operand] = []
    for x, maker in zip(inputs, makers, strict=True):
        found.append(maker.inputs[0] if maker is not None and maker.op is layout.broadcast_to else x)
    return found
