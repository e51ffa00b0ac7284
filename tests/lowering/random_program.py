"""Random SemanticPrograms over every form, from a seed: views on views, reductions, windows, gathers and updates."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from tenferro.tracer.dims import Leaf, add, evaluate_shape, floordiv, leaf, mul, sub
from tenferro.tracer.program import SemanticProgram, Value
from tests.lowering.programs import F64, I64, Builder, number


class Generator:
    """Grows one program. Sizes are symbols; ``sizes`` gives the values that the run will have."""

    def __init__(self, seed: int, length: int = 14) -> None:
        self.random = random.Random(seed)
        self.b = Builder(f"random{seed}")
        self.sizes = {
            Leaf("extent", 0, 0): self.random.choice([1, 3, 4, 5]),
            Leaf("extent", 0, 1): self.random.choice([1, 2, 4, 6]),
        }
        n, m = leaf("extent", 0, 0), leaf("extent", 0, 1)
        self.pool: list[Value] = [
            self.b.input("x", 2, shape=(n, m)),
            self.b.input("y", 2, shape=(n, m)),
            self.b.input("v", 1, shape=(m,)),
            self.b.input("k", 1, dtype=I64, shape=(n,)),
        ]
        for _ in range(length):
            self.grow()

    def pick(self, *, dtype: Any = F64, rank: int | None = None, shape: Any = None) -> Value | None:
        fits = [
            v
            for v in self.pool
            if v.type.dtype == dtype
            and (rank is None or v.type.rank == rank)
            and (shape is None or v.type.shape == shape)
        ]
        return self.random.choice(fits[-6:] + fits[:2]) if fits else None

    def grow(self) -> None:
        steps = [
            *[self.unary] * 2, *[self.binary] * 3, *[self.update] * 2, self.reduction, self.softmax, self.transpose,
            self.slice, self.broadcast, self.expand, self.squeeze, self.flatten, self.pad, self.concatenate, self.take,
            self.where, self.iota, self.full, self.divide, self.matmul, self.cumsum, self.scalar, self.in_place,
        ]  # fmt: skip
        step = self.random.choice(steps)
        x = self.pick()
        assert x is not None
        made = step(x)
        if made is not None:
            self.pool.append(made)

    def unary(self, x: Value) -> Value:
        op = self.random.choice(["exp", "negative", "absolute", "sqrt", "copy", "cos"])
        return self.b.emit(op, x)

    def binary(self, x: Value) -> Value:
        y = self.pick(shape=x.type.shape) or x
        if self.random.random() < 0.3:
            y = self.pick(rank=0) or number(self.random.choice([1.0, 2.0, 0.0, -0.0, 0.1]))  # type: ignore[assignment]
        pair = [x, y]
        self.random.shuffle(pair)
        return self.b.emit(self.random.choice(["add", "subtract", "multiply", "divide", "maximum"]), *pair)

    def reduction(self, x: Value) -> Value | None:
        if not x.type.rank:
            return None
        axes = tuple(sorted(self.random.sample(range(x.type.rank), self.random.randint(1, x.type.rank))))
        op = self.random.choice(["sum", "prod", "max", "min", "squared_deviations", "argmax"])
        if op != "sum" and any(evaluate_shape((x.type.shape[a],), self.sizes)[0] == 0 for a in axes):
            op = "sum"
        made = self.b.emit(op, x, axes=axes, keepdims=self.random.random() < 0.5)
        return made if op != "argmax" else self.b.astype(made, dtype=F64)

    def softmax(self, x: Value) -> Value | None:
        if not x.type.rank:
            return None
        axis = self.random.randrange(x.type.rank)
        s = self.b.reduce("sum", x, axis, keepdims=True)
        y = self.b.divide(self.b.exp(x), self.b.broadcast_to(s, shape=x.type.shape, axes=tuple(range(x.type.rank))))
        return self.b.add(y, x)

    def transpose(self, x: Value) -> Value:
        axes = list(range(x.type.rank))
        self.random.shuffle(axes)
        return self.b.transpose(x, axes=tuple(axes))

    def pieces(self, x: Value) -> dict[str, Any]:
        starts, steps, sizes = [], [], []
        for n in x.type.shape:
            kind = self.random.randrange(5)
            size = evaluate_shape((n,), self.sizes)[0]
            if kind == 0 or size < 2:
                piece: Any = (0, 1, n)
            elif kind == 1:
                piece = (sub(n, 1), -1, n)
            elif kind == 2:
                piece = (1, 1, sub(n, 1))
            elif kind == 3:
                piece = (0, 2, floordiv(add(n, 1), 2))
            else:
                piece = (1, 1, 1)
            for column, value in zip((starts, steps, sizes), piece, strict=True):
                column.append(value)
        return {"starts": tuple(starts), "steps": tuple(steps), "sizes": tuple(sizes)}

    def slice(self, x: Value) -> Value:
        return self.b.emit("slice", x, **self.pieces(x))

    def broadcast(self, x: Value) -> Value:
        like = self.pick() or x
        shape, axes, k = like.type.shape, [], 0
        for n in x.type.shape:
            while k < len(shape) and n != 1 and shape[k] != n:
                k += 1
            if k == len(shape):
                return x
            axes.append(k)
            k += 1
        return self.b.broadcast_to(x, shape=shape, axes=tuple(axes))

    def expand(self, x: Value) -> Value | None:
        if x.type.rank > 2:
            return None
        at = self.random.randint(0, x.type.rank)
        shape = (*x.type.shape[:at], 1, *x.type.shape[at:])
        axes = tuple(a for a in range(len(shape)) if a != at)
        return self.b.broadcast_to(x, shape=shape, axes=axes) if at % 2 else self.b.reshape(x, shape=shape)

    def squeeze(self, x: Value) -> Value:
        return self.b.reshape(x, shape=tuple(n for n in x.type.shape if n != 1))

    def flatten(self, x: Value) -> Value | None:
        if x.type.rank != 2:
            return None
        return self.b.reshape(x, shape=(mul(x.type.shape[0], x.type.shape[1]),))

    def pad(self, x: Value) -> Value:
        low = tuple(self.random.choice([0, 0, 1, 2]) for _ in x.type.shape)
        high = tuple(self.random.choice([0, 0, 1]) for _ in x.type.shape)
        fill = self.random.choice([number(0.0), number(3.0), number(-0.0), self.pick(rank=0) or number(1.0)])
        return self.b.pad(x, fill, low=low, high=high)

    def concatenate(self, x: Value) -> Value | None:
        if not x.type.rank:
            return None
        count = self.random.choice([1, 2, 3, 5])
        others = [self.pick(shape=x.type.shape) or x for _ in range(count)]
        return self.b.concatenate(x, *others, axis=self.random.randrange(x.type.rank))

    def take(self, x: Value) -> Value | None:
        if not x.type.rank:
            return None
        index: Value = self.pick(dtype=I64)  # type: ignore[assignment]
        axis = self.random.randrange(x.type.rank)
        n = evaluate_shape((x.type.shape[axis],), self.sizes)[0]
        if not n or x.type.rank + index.type.rank > 4:
            return None
        last = sub(x.type.shape[axis], 1)
        from tests.lowering.programs import size

        top = number(last, I64) if isinstance(last, int) else size(last, I64)
        index = self.b.maximum(self.b.minimum(index, top), number(0, I64))
        return self.b.take(x, index, axis=axis)

    def update(self, x: Value) -> Value:
        params = self.pieces(x)
        value = self.pick(shape=params["sizes"])
        if value is None or self.random.random() < 0.5:
            value = self.b.negative(self.b.emit("slice", self.pick(shape=x.type.shape) or x, **params))
        if self.random.random() < 0.2:
            value = self.pick(rank=0) or number(7.0)  # type: ignore[assignment]
        return self.b.emit("slice_update", x, value, **params)

    def in_place(self, x: Value) -> Value:
        params = self.pieces(x)
        return self.b.emit("slice_update", x, self.b.add(self.b.emit("slice", x, **params), number(1.0)), **params)

    def where(self, x: Value) -> Value:
        y = self.pick(shape=x.type.shape) or x
        return self.b.where(self.b.less(x, y), x, self.b.exp(y))

    def iota(self, x: Value) -> Value | None:
        if not x.type.rank:
            return None
        made = self.b.iota(shape=x.type.shape, axis=self.random.randrange(x.type.rank))
        self.pool.append(made)
        return self.b.astype(made, dtype=F64)

    def full(self, x: Value) -> Value:
        return self.b.broadcast_to(number(2.5), shape=x.type.shape, axes=())

    def divide(self, x: Value) -> Value | None:
        index = self.pick(dtype=I64)
        if index is None:
            return None
        other = self.pick(dtype=I64, shape=index.type.shape) or index
        safe = self.b.where(self.b.not_equal(other, number(0, I64)), self.b.floor_divide(index, other), number(0, I64))
        self.pool.append(safe)
        return None

    def matmul(self, x: Value) -> Value | None:
        if x.type.rank != 2:
            return None
        return self.b.matmul(x, self.b.transpose(x, axes=(1, 0)))

    def cumsum(self, x: Value) -> Value | None:
        return self.b.cumsum(x, axis=0) if x.type.rank else None

    def scalar(self, x: Value) -> Value:
        s = self.b.reduce("sum", x, tuple(range(x.type.rank))) if x.type.rank else x
        return self.b.multiply(s, number(0.5))

    def program(self) -> tuple[SemanticProgram, list[Any]]:
        made = self.pool[4:] or self.pool
        outputs: list[Any] = self.random.sample(made, min(len(made), self.random.choice([1, 2, 3])))
        outputs.append(self.pool[-1])
        rng = np.random.default_rng(self.random.randrange(1000))
        shapes = [evaluate_shape(v.type.shape, self.sizes) for v in self.pool[:4]]
        arrays = [rng.normal(size=s) for s in shapes[:3]] + [rng.integers(-3, 4, shapes[3])]
        return self.b.finish(*outputs), arrays
