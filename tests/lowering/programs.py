"""Hand-built SemanticPrograms for the lowering tests: a builder that broadcasts and names axes like the API layer."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from tenferro.lowering.checker import check
from tenferro.tracer.dims import Extent, leaf
from tenferro.tracer.lines import SourceLine
from tenferro.tracer.op import Op
from tenferro.tracer.ops import OPS
from tenferro.tracer.program import (
    ArrayType,
    DimScalar,
    Literal,
    Operand,
    Operation,
    Params,
    ProgramInput,
    SemanticProgram,
    ShapeGuard,
    Value,
)

F32, F64, I64, BOOL = (np.dtype(n) for n in ("float32", "float64", "int64", "bool"))


class Builder:
    """Grows a program; ``b.exp(x)`` appends the op of that name."""

    def __init__(self, name: str = "f") -> None:
        self.name = name
        self.inputs: list[ProgramInput] = []
        self.operations: list[Operation] = []
        self.guards: list[ShapeGuard] = []
        self.n_values = 0

    def input(self, name: str, rank: int, dtype: Any = F64, shape: Sequence[Extent] | None = None) -> Value:
        k = len(self.inputs)
        sizes = tuple(leaf("extent", k, a) for a in range(rank)) if shape is None else tuple(shape)
        value = Value(k, ArrayType(np.dtype(dtype), sizes))
        self.inputs.append(ProgramInput(value, "argument", name))
        self.n_values += 1
        return value

    def emit(self, op: str | Op, *inputs: Operand, **params: Hashable) -> Value:
        row = OPS[op] if isinstance(op, str) else op
        found = Params(**params)
        (kind,) = row.infer([x.type for x in inputs], found)
        value = Value(self.n_values, kind)
        self.n_values += 1
        line = SourceLine("user.py", len(self.operations) + 1)
        self.operations.append(Operation(row, inputs, found, (value,), line))
        return value

    def __getattr__(self, name: str) -> Any:
        if name not in OPS:
            raise AttributeError(name)
        return lambda *inputs, **params: self.emit(name, *inputs, **params)

    def reduce(self, op: str, x: Value, axes: int | tuple[int, ...], keepdims: bool = False) -> Value:
        axes = (axes,) if isinstance(axes, int) else axes
        return self.emit(op, x, axes=axes, keepdims=keepdims)

    def back(self, small: Operand, like: Value, axes: tuple[int, ...] | None = None) -> Value:
        """``small`` broadcast to the shape of ``like``: trailing axes, or the given ones."""
        rank = small.type.rank
        axes = tuple(range(like.type.rank - rank, like.type.rank)) if axes is None else axes
        return self.emit("broadcast_to", small, shape=like.type.shape, axes=axes)

    def slice(self, x: Value, *pieces: tuple[Extent, int, Extent]) -> Value:
        """One (start, step, size) per axis."""
        starts, steps, sizes = zip(*pieces, strict=True)
        return self.emit("slice", x, starts=starts, steps=steps, sizes=sizes)

    def finish(self, *outputs: Operand, aliases: Sequence[int] | None = None) -> SemanticProgram:
        groups = tuple(range(len(outputs))) if aliases is None else tuple(aliases)
        program = SemanticProgram(
            self.name, tuple(self.inputs), tuple(self.operations), tuple(outputs), groups, tuple(self.guards)
        )
        check(program)
        return program


def number(value: float | int | bool | complex, dtype: Any = F64) -> Literal:
    return Literal(value, np.dtype(dtype))


def size(extent: Any, dtype: Any = F64) -> DimScalar:
    return DimScalar(extent, np.dtype(dtype))


def softmax() -> SemanticProgram:
    b = Builder("softmax")
    x = b.input("x", 2)
    m = b.reduce("max", x, 1, keepdims=True)
    e = b.exp(b.subtract(x, b.back(m, x)))
    s = b.reduce("sum", e, 1, keepdims=True)
    return b.finish(b.divide(e, b.back(s, x)))


def layer_norm(axis: int = 1) -> SemanticProgram:
    b = Builder("layer_norm")
    x = b.input("x", 2)
    gamma = b.input("gamma", 1, shape=(x.type.shape[1],))
    beta = b.input("beta", 1, shape=(x.type.shape[1],))
    n = size(x.type.shape[axis])
    mean = b.divide(b.reduce("sum", x, axis, keepdims=True), n)
    var = b.divide(b.reduce("squared_deviations", x, axis, keepdims=True), n)
    scale = b.divide(number(1.0), b.sqrt(b.add(var, number(1e-5))))
    normal = b.multiply(b.subtract(x, b.back(mean, x)), b.back(scale, x))
    return b.finish(b.add(b.multiply(normal, b.back(gamma, x)), b.back(beta, x)))


def log_sum_exp() -> SemanticProgram:
    b = Builder("log_sum_exp")
    x = b.input("x", 2)
    m = b.reduce("max", x, 1)
    s = b.reduce("sum", b.exp(b.subtract(x, b.back(m, x, axes=(0,)))), 1)
    return b.finish(b.add(b.log(s), m))


def var_all() -> SemanticProgram:
    b = Builder("var_all")
    x = b.input("x", 2)
    n = size(x.type.shape[0] * x.type.shape[1])
    return b.finish(b.divide(b.reduce("squared_deviations", x, (0, 1)), n))


def expsum() -> SemanticProgram:
    b = Builder("expsum")
    x, y = b.input("x", 1), b.input("y", 1)
    y = Value(y.id, ArrayType(F64, x.type.shape))
    b.inputs[1] = ProgramInput(y, "argument", "y")
    e = b.exp(b.negative(b.multiply(x, x)))
    return b.finish(b.reduce("sum", b.multiply(e, b.cos(y)), 0))


def heat() -> SemanticProgram:
    """``v = u.copy(); v[1:-1, 1:-1] += 0.1 * (five-point Laplacian of u)``."""
    b = Builder("heat")
    u = b.input("u", 2)
    n, m = u.type.shape
    inner = (n - 2, m - 2)  # type: ignore[operator]

    def at(i: int, j: int) -> Value:
        return b.slice(u, (i, 1, inner[0]), (j, 1, inner[1]))

    total = b.add(b.add(at(0, 1), at(2, 1)), b.add(at(1, 0), at(1, 2)))
    step = b.multiply(number(0.1), b.subtract(total, b.multiply(number(4.0), at(1, 1))))
    value = b.add(at(1, 1), step)
    out = b.slice_update(b.copy(u), value, starts=(1, 1), steps=(1, 1), sizes=inner)
    return b.finish(out)


def x_plus_xt() -> SemanticProgram:
    b = Builder("x_plus_xT")
    n = leaf("extent", 0, 0)
    x = b.input("x", 2, shape=(n, n))
    return b.finish(b.add(x, b.transpose(x, axes=(1, 0))))
