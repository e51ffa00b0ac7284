"""For each row of the op table: calls that show what it does, a call with free sizes, and a bad call.

``SAMPLES[name]`` is a ``Row``. A ``Sample`` is in the terms of the row's reference: arrays and evaluated params. A
``Sized`` call takes two sizes, ints or symbols, so that one program can be compared with a fresh one at every size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any, Literal, TypeAlias

import numpy as np

from tenferro.tracer.dims import Extent, leaf, mul
from tenferro.tracer.errors import DtypeError, ShapeError
from tenferro.tracer.program import ArrayType
from tests.values import DTYPES, corners, factors, filled, of_kinds, pairs, uniform
from tests.vocabulary import VOCABULARY

Array: TypeAlias = np.ndarray[Any, Any]
Shape: TypeAlias = tuple[Extent, ...]
Values: TypeAlias = Callable[[tuple[int, ...], str, int], Array]


@dataclass(frozen=True)
class Sample:
    operands: tuple[Array, ...]
    params: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return ", ".join([f"{x.dtype}{x.shape}" for x in self.operands] + [f"{k}={v}" for k, v in self.params.items()])


@dataclass(frozen=True)
class Sized:
    """A call at sizes (n, m). ``variants``: dtypes of the operands. ``minimum``: the least n and m it exists for."""

    variants: tuple[tuple[str, ...], ...]
    shapes: Callable[[Extent, Extent], tuple[Shape, ...]]
    params: Callable[[Extent, Extent], Mapping[str, Any]] = lambda n, m: {}
    minimum: int = 0


@dataclass(frozen=True)
class BadCall:
    """Operand types and params that the row's rule refuses, and the text it refuses them with."""

    types: tuple[ArrayType, ...]
    params: Mapping[str, Any]
    error: type[Exception]
    text: str


Agreement = Literal[
    "bits", "values", "elementary", "larger", "complex", "drawn", "sum", "factors", "deviations", "product"
]
"""How an engine's result compares with the row's NumPy reference: equal bits; equal values (a zero's sign is free);
within the stated ulp of the true value, or of the larger operand; within rounding of a complex formula, or of the
numbers that a draw is made of; within rounding of a sum (of squares) or of a product."""


@dataclass(frozen=True)
class Row:
    samples: tuple[Sample, ...]
    sized: Sized
    bad: BadCall
    agreement: Agreement


def _type(dtype: str, *shape: Extent) -> ArrayType:
    return ArrayType(np.dtype(dtype), shape)


SHAPES: tuple[tuple[int, ...], ...] = ((), (1,), (0,), (3, 0), (1, 1), (5, 7))


def _unary(dtypes: tuple[str, ...]) -> Iterator[Sample]:
    for dtype in dtypes:
        yield Sample((corners(np.dtype(dtype)),))
        for shape in SHAPES:
            yield Sample((filled(shape, dtype, 1),))
        yield Sample((uniform((37,), dtype, 2),))


def without_sign(x: Array) -> Array:
    """Integers as an exponent may be: none below 0."""
    return np.asarray(x & np.iinfo(x.dtype).max) if x.dtype.kind == "i" else x


def _exponents(dtypes: tuple[str, ...]) -> Iterator[Sample]:
    return (Sample((x.operands[0], without_sign(x.operands[1]))) for x in _binary(dtypes))


def _binary(dtypes: tuple[str, ...]) -> Iterator[Sample]:
    for dtype in dtypes:
        yield Sample(pairs(corners(np.dtype(dtype))))
        for shape in SHAPES:
            yield Sample((filled(shape, dtype, 1), filled(shape, dtype, 2)))
        yield Sample((filled((2, 3), dtype, 3), filled((), dtype, 4)))
        yield Sample((filled((), dtype, 5), filled((0, 2), dtype, 6)))
        yield Sample((uniform((37,), dtype, 7), uniform((37,), dtype, 8)))


def _same(count: int) -> Callable[[Extent, Extent], tuple[Shape, ...]]:
    return lambda n, m: ((n, m),) * count


def _refused(name: str, arity: int, kinds: str) -> BadCall:
    """A dtype without a rule, or operands of unequal dtypes where every dtype has one."""
    outside = [d for d in DTYPES if np.dtype(d).kind not in kinds]
    if outside:
        dtype = outside[0]
        return BadCall((_type(dtype, 3),) * arity, {}, DtypeError, f"{name}: dtype {dtype}; no rule for it")
    if arity == 1:
        return BadCall((_type("str", 3),), {}, DtypeError, f"{name}: dtype str; no rule for it")
    types = (_type("float32", 3), _type("float64", 3))
    return BadCall(types, {}, DtypeError, f"{name}: operands of dtypes ['float32', 'float64']; they must be equal here")


def pointwise(
    name: str, arity: Literal[1, 2], kinds: str, agreement: Agreement, sized: tuple[str, ...] = ("float32", "int16")
) -> Row:
    dtypes = of_kinds(kinds)
    samples = _unary(dtypes) if arity == 1 else (_exponents if name == "power" else _binary)(dtypes)
    usable = tuple(d for d in sized if d in dtypes) or ("int32", "bool")
    return Row(
        tuple(samples),
        Sized(tuple((d,) * arity for d in usable), _same(arity)),
        _refused(name, arity, kinds),
        agreement,
    )


def _required() -> Row:
    def samples() -> Iterator[Sample]:
        for dtype in DTYPES:
            for shape in (*SHAPES, (37,)):
                yield Sample((filled(shape, dtype, 1), np.ones(shape, np.int64)), params)

    params = {"name": "nanargmax", "reason": "NaN"}
    bad = BadCall(
        (_type("float32", 3), _type("bool", 3)), params, DtypeError,
        "required: operands ['float32(3,)', 'bool(3,)']; the second as int64 of one shape is needed here",
    )  # fmt: skip
    return Row(tuple(samples()), Sized((("float32", "int64"),), _same(2), lambda n, m: params), bad, "bits")


def _where() -> Row:
    def samples() -> Iterator[Sample]:
        for dtype in DTYPES:
            x, y = pairs(corners(np.dtype(dtype)))
            yield Sample((uniform(x.shape, "bool", 1), x, y))
            for shape in SHAPES:
                yield Sample((uniform(shape, "bool", 2), filled(shape, dtype, 3), filled(shape, dtype, 4)))
            yield Sample((np.array(True), filled((3, 2), dtype, 5), filled((), dtype, 6)))
            yield Sample((uniform((3, 2), "bool", 7), filled((), dtype, 8), filled((3, 2), dtype, 9)))

    bad = BadCall(
        (_type("int32", 3), _type("float32", 3), _type("float32", 3)), {}, DtypeError,
        "where: operands ['int32(3,)', 'float32(3,)', 'float32(3,)']; a bool and two of one dtype are needed here",
    )  # fmt: skip
    return Row(tuple(samples()), Sized((("bool", "float32", "float32"),), _same(3)), bad, "bits")


def _astype() -> Row:
    def samples() -> Iterator[Sample]:
        for source in DTYPES:
            values = corners(np.dtype(source))
            wide = uniform((41,), source, 1)
            large = (wide * 1000).astype(source) if wide.dtype.kind in "fc" else wide
            for target in DTYPES:
                params = {"dtype": np.dtype(target)}
                yield Sample((np.concatenate([values, wide, large]),), params)
            for shape in SHAPES:
                yield Sample((filled(shape, source, 2),), {"dtype": np.dtype("float32")})

    sized = Sized((("float32",),), _same(1), lambda n, m: {"dtype": np.dtype("int16")})
    bad = BadCall((_type("float32", 3),), {"dtype": np.dtype("U3")}, DtypeError, "astype: dtype str96; no rule for it")
    return Row(tuple(samples()), sized, bad, "bits")


def _bitcast() -> Row:
    def samples() -> Iterator[Sample]:
        for source in map(np.dtype, of_kinds("biuf")):
            for target in map(np.dtype, of_kinds("biuf")):
                if source.itemsize == target.itemsize:
                    yield Sample(
                        (np.concatenate([corners(source), uniform((41,), source.name, 1)]),), {"dtype": target}
                    )
            for shape in SHAPES:
                yield Sample((filled(shape, source.name, 2),), {"dtype": np.dtype(f"u{source.itemsize}")})

    sized = Sized((("float32",),), _same(1), lambda n, m: {"dtype": np.dtype("int32")})
    bad = BadCall(
        (_type("float32", 3),), {"dtype": np.dtype("int64")}, DtypeError,
        "bitcast: float32 as int64; real dtypes of equal width are needed here",
    )  # fmt: skip
    return Row(tuple(samples()), sized, bad, "bits")


REDUCED: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((1,), (0,)), ((7,), (0,)), ((3, 5), (0,)), ((3, 5), (1,)), ((3, 5), (0, 1)), ((2, 3, 4), (0, 2)),
    ((2, 3, 4), (1,)),
    ((0, 3), (1,)), ((1, 1), (0, 1)), ((4500,), (0,)), ((33, 2), (0,)),
)  # fmt: skip
EMPTY_REDUCED: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (((0,), (0,)), ((3, 0), (1,)), ((0, 0), (0,)))


def reduction(
    name: str, kinds: str, agreement: Agreement, *, empty: bool, wild: bool = True, values: Values = uniform
) -> Row:
    """``empty``: whether no elements have a result. ``wild``: whether corner values are compared as well. ``values``:
    what long rows hold."""

    def samples() -> Iterator[Sample]:
        for dtype in of_kinds(kinds):
            for shape, axes in REDUCED + (EMPTY_REDUCED if empty else ()):
                for keepdims in (False, True):
                    yield Sample((filled(shape, dtype, 1),), {"axes": axes, "keepdims": keepdims})
            for odd in (corners(np.dtype(dtype)),) if wild else ():
                spread = np.stack([np.roll(odd, k) for k in range(3)])
                yield Sample((spread,), {"axes": (1,), "keepdims": False})
                yield Sample((spread,), {"axes": (0,), "keepdims": False})
                yield Sample((odd[-7:],), {"axes": (0,), "keepdims": False})
            yield Sample((values((5, 131), dtype, 2),), {"axes": (1,), "keepdims": False})
            yield Sample((values((131, 5), dtype, 3),), {"axes": (0,), "keepdims": True})

    sized = Sized(
        (("float32",), ("float64",)),
        _same(1),
        lambda n, m: {"axes": (1,), "keepdims": False},
        minimum=0 if empty else 1,
    )
    params = {"axes": (2,), "keepdims": False}
    bad = BadCall(
        (_type("float32", 3, 4),), params, ShapeError, f"{name}: axes (2,) for rank 2; each must be in [0, 2)"
    )
    return Row(tuple(samples()), sized, bad, agreement)


def _each_dtype(*calls: tuple[tuple[int, ...], Mapping[str, Any]]) -> tuple[Sample, ...]:
    """Every call on every dtype, and once on corner values (all of which a layout op must carry through untouched)."""
    found = [Sample((filled(shape, dtype, 1),), params) for shape, params in calls for dtype in DTYPES]
    for dtype in ("float16", "float32", "float64", "complex64", "complex128"):
        values = corners(np.dtype(dtype))
        found += [Sample((np.resize(values, shape),), params) for shape, params in calls]
    return tuple(found)


def _reshape() -> Row:
    samples = _each_dtype(
        ((6,), {"shape": (2, 3)}), ((2, 3), {"shape": (3, 2)}), ((2, 3, 4), {"shape": (6, 4)}), ((), {"shape": (1, 1)}),
        ((1,), {"shape": ()}), ((0, 3), {"shape": (3, 0, 5)}), ((24,), {"shape": (2, 3, 4)}),
        ((4, 1, 3), {"shape": (4, 3)}),
    )  # fmt: skip
    sized = Sized((("float32",),), _same(1), lambda n, m: {"shape": (m * n,)})
    bad = BadCall(
        (_type("float32", 2, 3),),
        {"shape": (4, 2)},
        ShapeError,
        "reshape: 6 elements of (2, 3); 8 are needed for (4, 2)",
    )
    return Row(samples, sized, bad, "bits")


def _transpose() -> Row:
    calls: list[tuple[tuple[int, ...], Mapping[str, Any]]] = [((2, 3, 4), {"axes": p}) for p in permutations(range(3))]
    calls += [((), {"axes": ()}), ((3,), {"axes": (0,)}), ((0, 2), {"axes": (1, 0)}), ((1, 5), {"axes": (1, 0)})]
    sized = Sized((("float32",), ("int8",)), _same(1), lambda n, m: {"axes": (1, 0)})
    bad = BadCall(
        (_type("float32", 2, 3),), {"axes": (0, 0)}, ShapeError,
        "transpose: axes (0, 0) for rank 2; a permutation is needed",
    )  # fmt: skip
    return Row(_each_dtype(*calls), sized, bad, "bits")


def _broadcast_to() -> Row:
    samples = _each_dtype(
        ((), {"shape": (2, 3), "axes": ()}), ((3,), {"shape": (2, 3), "axes": (1,)}),
        ((2,), {"shape": (2, 3), "axes": (0,)}),
        ((2, 1), {"shape": (2, 3), "axes": (0, 1)}), ((1,), {"shape": (0,), "axes": (0,)}),
        ((), {"shape": (), "axes": ()}),
        ((3, 2), {"shape": (3, 1, 2), "axes": (0, 2)}), ((1, 1), {"shape": (4, 1, 5), "axes": (1, 2)}),
    )  # fmt: skip
    sized = Sized((("float32",),), lambda n, m: ((n, 1),), lambda n, m: {"shape": (m, n, m), "axes": (1, 2)})
    bad = BadCall(
        (_type("float32", 2, 3),), {"shape": (2, 3), "axes": (1, 0)}, ShapeError,
        "broadcast_to: axes (1, 0) for rank 2; one increasing axis per operand axis",
    )  # fmt: skip
    return Row(samples, sized, bad, "bits")


def _box(starts: tuple[Extent, ...], steps: tuple[int, ...], sizes: tuple[Extent, ...]) -> Mapping[str, Any]:
    return {"starts": starts, "steps": steps, "sizes": sizes}


def _slice() -> Row:
    samples = _each_dtype(
        ((7,), _box((1,), (2,), (3,))), ((7,), _box((6,), (-1,), (7,))), ((7,), _box((5,), (-3,), (2,))),
        ((7,), _box((0,), (1,), (0,))), ((4, 5), _box((1, 4), (1, -2), (3, 3))), ((1,), _box((0,), (1,), (1,))),
        ((), _box((), (), ())), ((0, 3), _box((0, 2), (1, -1), (0, 3))), ((4, 5), _box((0, 2), (3, 1), (2, 1))),
    )  # fmt: skip
    sized = Sized(
        (("float32",),), _same(1), lambda n, m: _box((1, m - 1), (1, -1), (n - 1, m)), minimum=1
    )  # x[1:, ::-1]
    bad = BadCall(
        (_type("float32", 2, 3),),
        _box((0,), (1,), (2,)),
        ShapeError,
        "slice: 1 sizes for rank 2; one per axis is needed",
    )
    return Row(samples, sized, bad, "bits")


def _pad() -> Row:
    def samples() -> Iterator[Sample]:
        for dtype in DTYPES:
            fill = np.array(corners(np.dtype(dtype))[0])
            yield Sample((filled((4,), dtype, 1), fill), {"low": (2,), "high": (1,)})
            yield Sample((filled((2, 3), dtype, 2), fill), {"low": (0, 1), "high": (2, 0)})
            yield Sample((filled((0,), dtype, 3), fill), {"low": (1,), "high": (2,)})
            yield Sample((filled((1, 1), dtype, 4), fill), {"low": (0, 0), "high": (0, 0)})
            yield Sample((filled((), dtype, 5), fill), {"low": (), "high": ()})

    sized = Sized((("float32", "float32"),), lambda n, m: ((n, m), ()), lambda n, m: {"low": (1, n), "high": (m, 2)})
    bad = BadCall(
        (_type("float32", 2), _type("float64")), {"low": (1,), "high": (1,)}, DtypeError,
        "pad: fill float64() for float32(2,); a scalar of the same dtype is needed here",
    )  # fmt: skip
    return Row(tuple(samples()), sized, bad, "bits")


def _concatenate() -> Row:
    def samples() -> Iterator[Sample]:
        for dtype in DTYPES:
            for axis, shapes in (
                (0, ((2,), (3,))), (0, ((1,),)), (0, ((0,), (2,), (0,))), (1, ((2, 3), (2, 1), (2, 0), (2, 2))),
                (0, ((1, 3), (2, 3))), (1, ((2, 2, 3), (2, 4, 3))),
            ):  # fmt: skip
                yield Sample(tuple(filled(s, dtype, k) for k, s in enumerate(shapes)), {"axis": axis})

    sized = Sized((("float32",) * 3,), lambda n, m: ((n, m), (m, m), (1, m)), lambda n, m: {"axis": 0})
    bad = BadCall(
        (_type("float32", 2), _type("float64", 2)), {"axis": 0}, ShapeError,
        "concatenate: operands ['float32(2,)', 'float64(2,)']; one dtype and one rank are needed here",
    )  # fmt: skip
    return Row(tuple(samples()), sized, bad, "bits")


def _iota() -> Row:
    shapes = (((4,), 0), ((2, 3), 0), ((2, 3), 1), ((0,), 0), ((1, 1), 1), ((200,), 0))
    sized = Sized(((),), lambda n, m: (), lambda n, m: {"shape": (n, m), "axis": 1})
    bad = BadCall((), {"shape": (3,), "axis": 1}, ShapeError, "iota: axis 1 for rank 1; it must be in [0, 1)")
    return Row(tuple(Sample((), {"shape": s, "axis": a}) for s, a in shapes), sized, bad, "bits")


def _take() -> Row:
    def samples() -> Iterator[Sample]:
        for dtype in DTYPES:
            for shape, axis, indices in (
                ((5,), 0, [4, 0, -1, 2, -5]), ((3, 4), 0, [2, 2]), ((3, 4), 1, [[0, -1], [3, 1]]), ((3, 4), 1, 2),
                ((3, 2), 0, []), ((2, 3, 2), 1, [1]), ((1,), 0, [0, 0, -1]), ((0, 3), 1, [1, 0]),
            ):  # fmt: skip
                yield Sample((filled(shape, dtype, 1), np.array(indices, np.int64)), {"axis": axis})

    sized = Sized((("float32", "int64"),), lambda n, m: ((m, n), (n,)), lambda n, m: {"axis": 0}, minimum=1)
    bad = BadCall(
        (_type("float32", 4), _type("int32", 2)), {"axis": 0}, DtypeError,
        "take: indices of dtype int32; int64 is needed here",
    )  # fmt: skip
    return Row(tuple(samples()), sized, bad, "bits")


def _slice_update() -> Row:
    def samples() -> Iterator[Sample]:
        for dtype in DTYPES:
            for base, value, box in (
                ((5,), (3,), _box((1,), (1,), (3,))), ((5,), (), _box((4,), (-2,), (3,))),
                ((4, 3), (2, 3), _box((0, 2), (3, -1), (2, 3))),
                ((5,), (0,), _box((0,), (1,), (0,))), ((), (), _box((), (), ())),
                ((1, 1), (1, 1), _box((0, 0), (1, 1), (1, 1))),
                ((0, 2), (0, 1), _box((0, 1), (1, 1), (0, 1))), ((4, 3), (), _box((1, 0), (1, 1), (2, 3))),
            ):  # fmt: skip
                yield Sample((filled(base, dtype, 1), filled(value, dtype, 2)), box)

    sized = Sized(
        (("float32", "float32"),), lambda n, m: ((n, m), (n - 1, m)), lambda n,
        m: _box((1, m - 1), (1, -1), (n - 1, m)),
        minimum=1,
    )  # fmt: skip
    bad = BadCall(
        (_type("float32", 4), _type("float64", 2)), _box((0,), (1,), (2,)), ShapeError,
        "slice_update: value float64(2,) for base float32(4,) sizes (2,)",
    )  # fmt: skip
    return Row(tuple(samples()), sized, bad, "bits")


def _matmul() -> Row:
    def samples() -> Iterator[Sample]:
        for dtype in of_kinds("iufc"):
            for a, b in (
                ((2, 3), (3, 4)), ((1, 1), (1, 1)), ((0, 3), (3, 2)), ((2, 0), (0, 3)), ((2, 3, 4), (2, 4, 2)),
                ((1, 2, 3), (1, 3, 1)), ((17, 33), (33, 9)),
            ):  # fmt: skip
                yield Sample((filled(a, dtype, 1), filled(b, dtype, 2)))

    sized = Sized((("float32", "float32"),), lambda n, m: ((n, m), (m, n)))
    bad = BadCall(
        (_type("float32", 2, 3), _type("float32", 3)), {}, ShapeError,
        "matmul: operands float32(2, 3) and float32(3,); equal dtypes and equal ranks of at least 2 are needed here",
    )  # fmt: skip
    return Row(tuple(samples()), sized, bad, "product")


def _mask_select() -> Row:
    extent = {"extent": leaf("runtime", 0, 0)}

    def samples() -> Iterator[Sample]:
        for dtype in DTYPES:
            for shape, mask in (
                ((5,), (5,)),
                ((3, 4), (3, 4)),
                ((3, 4), (3,)),
                ((0,), (0,)),
                ((1,), (1,)),
                ((2, 0), (2,)),
            ):
                yield Sample((filled(shape, dtype, 1), uniform(mask, "bool", 2)), extent)
            yield Sample((filled((4,), dtype, 3), np.zeros(4, bool)), extent)

    sized = Sized((("float32", "bool"),), _same(2), lambda n, m: extent)
    bad = BadCall(
        (_type("float32", 4), _type("int32", 4)), extent, ShapeError,
        "mask_select: mask int32(4,) for float32(4,); a bool array over the leading axes is needed here",
    )  # fmt: skip
    return Row(tuple(samples()), sized, bad, "bits")


def _bincount() -> Row:
    params = {"minlength": 2, "extent": leaf("runtime", 0, 0)}

    def samples() -> Iterator[Sample]:
        for dtype in ("int8", "int64", "uint8", "uint32", "bool"):
            for n in (0, 1, 9):
                x = filled((n,), "uint8", n).astype(dtype)
                yield Sample((x,), {**params, "minlength": 0})
                yield Sample((x, filled((n,), "float32", 1)), params)
                yield Sample((x, filled((n,), "float64", 1)), params)
                yield Sample((x, filled((n,), "int16", 2)), {**params, "minlength": 40})

    sized = Sized((("uint8", "float64"),), lambda n, m: ((n,), (n,)), lambda n, m: params)
    bad = BadCall(
        (_type("float32", 4),), params, DtypeError,
        "bincount: dtype float32; integers that fit into int64 are needed",
    )  # fmt: skip
    return Row(tuple(samples()), sized, bad, "bits")


def _cumsum() -> Row:
    def samples() -> Iterator[Sample]:
        for dtype in of_kinds("iufc"):
            for shape, axis in (
                ((5,), 0),
                ((3, 4), 0),
                ((3, 4), 1),
                ((0,), 0),
                ((1, 1), 1),
                ((2, 3, 2), 1),
                ((300,), 0),
            ):
                yield Sample((filled(shape, dtype, 1),), {"axis": axis})

    sized = Sized((("float32",),), _same(1), lambda n, m: {"axis": 1})
    bad = BadCall((_type("float32", 4),), {"axis": 1}, ShapeError, "cumsum: axis 1 for rank 1; it must be in [0, 1)")
    return Row(tuple(samples()), sized, bad, "bits")


def _recurrence() -> Row:
    def samples() -> Iterator[Sample]:
        for dtype in of_kinds("fc"):
            for shape, axis in (
                ((5,), 0), ((3, 4), 0), ((3, 4), 1), ((0,), 0), ((1, 1), 1), ((2, 3, 2), 1), ((37,), 0), ((0, 2), 1),
            ):  # fmt: skip
                yield Sample((filled(shape, dtype, 1), filled(shape, dtype, 2)), {"axis": axis})

    sized = Sized((("float32", "float32"),), _same(2), lambda n, m: {"axis": 1})
    bad = BadCall(
        (_type("float32", 4), _type("float32", 4)), {"axis": 1}, ShapeError,
        "recurrence: axis 1 for rank 1; it must be in [0, 1)",
    )  # fmt: skip
    return Row(tuple(samples()), sized, bad, "bits")


def _products_before() -> Row:
    def samples() -> Iterator[Sample]:
        for dtype in of_kinds("fc"):
            for shape, axis in (
                ((5,), 0),
                ((3, 4), 0),
                ((3, 4), 1),
                ((0,), 0),
                ((1, 1), 1),
                ((2, 3, 2), 1),
                ((300, 4), 1),
            ):
                for reverse in (False, True):
                    yield Sample((filled(shape, dtype, 1),), {"axis": axis, "reverse": reverse})

    sized = Sized((("float32",),), _same(1), lambda n, m: {"axis": 1, "reverse": True})
    bad = BadCall(
        (_type("int32", 4),), {"axis": 0, "reverse": False}, DtypeError,
        "products_before: dtype int32; no rule for it",
    )  # fmt: skip
    return Row(tuple(samples()), sized, bad, "bits")


def _scatter() -> Row:
    def samples() -> Iterator[Sample]:
        for dtype in of_kinds("iufc"):
            for mode, base, axis, indices in (
                ("set", (5,), 0, [4, 0, -2]), ("add", (5,), 0, [1, 1, 1, -1]), ("set", (3, 4), 1, [2, 0]),
                ("add", (3, 4), 0, [[0, 2], [2, 2]]), ("set", (3,), 0, []), ("add", (1,), 0, [0, 0]),
                ("subtract", (5,), 0, [1, 1, -1]), ("multiply", (5,), 0, [1, 1, -1]), ("minimum", (5,), 0, [0, 0, 3]),
                ("maximum", (3, 4), 1, [2, 2]),
            ):  # fmt: skip
                index = np.array(indices, np.int64)
                window = (*base[:axis], *index.shape, *base[axis + 1 :])
                yield Sample((filled(base, dtype, 1), index, filled(window, dtype, 2)), {"axis": axis, "mode": mode})

    sized = Sized(
        (("float32", "int64", "float32"),), lambda n, m: ((m, n), (n,), (n, n)), lambda n,
        m: {"axis": 0, "mode": "add"},
        minimum=1,
    )  # fmt: skip
    bad = BadCall(
        (_type("float32", 4), _type("int64", 2), _type("float32")), {"axis": 0, "mode": "set"}, ShapeError,
        "scatter: value float32() for a window of (2,); one shape is needed here",
    )  # fmt: skip
    return Row(tuple(samples()), sized, bad, "bits")


def _mask_update() -> Row:
    def samples() -> Iterator[Sample]:
        for dtype in DTYPES:
            for shape, mask_shape in (((6,), (6,)), ((3, 4), (3, 4)), ((0,), (0,)), ((1,), (1,))):
                mask = uniform(mask_shape, "bool", 1)
                yield Sample((filled(shape, dtype, 2), mask, filled((int(mask.sum()),), dtype, 3)))

    sized = Sized((("float32", "bool", "float32"),), lambda n, m: ((n, m), (n, m), (1,)))
    bad = BadCall(
        (_type("float32", 4), _type("int32", 4), _type("float32", 2)), {}, ShapeError,
        "mask_update: mask int32(4,) for float32(4,); a bool array over the leading axes is needed here",
    )  # fmt: skip
    return Row(tuple(samples()), sized, bad, "bits")


def _numpy_call() -> Row:
    def call(function: str, shape: Shape, dtype: str, **static: Any) -> Mapping[str, Any]:
        return {"function": function, "static": tuple(static.items()), "shape": shape, "dtype": np.dtype(dtype)}

    samples = []
    for dtype in of_kinds("iuf"):
        samples.append(Sample((filled((4, 3), dtype, 1),), call("sort", (4, 3), dtype, axis=0)))
        samples.append(Sample((filled((5,), dtype, 2), filled((5,), dtype, 3)), call("fmax", (5,), dtype)))
        samples += [Sample((filled((n,), dtype, 4),), call("sort", (n,), dtype)) for n in (0, 1)]
    for dtype in of_kinds("f"):
        values = uniform((4, 5), dtype, 5)
        samples.append(Sample((values,), call("cumprod", (4, 5), dtype, axis=1)))
        samples.append(Sample((values,), call("median", (5,), dtype, axis=(0,), keepdims=False)))
        for method, q in (("linear", 0.3), ("lower", 0.6), ("higher", 0.3), ("nearest", 0.4), ("midpoint", 0.5)):
            options = {"axis": (1, 0), "keepdims": True, "method": method, "q": q}
            samples.append(Sample((values,), call("quantile", (1, 1), dtype, **options)))
        samples.append(Sample((values,), call("percentile", (4,), dtype, axis=(1,), keepdims=False, q=30)))
        powers = np.array([[0], [-2], [3], [1]], np.int64) * np.ones(5, np.int64)
        samples.append(Sample((values, powers), call("ldexp", (4, 5), dtype)))
    points, heights = np.array([-1.0, 0.5, 1.5, 2.0]), np.array([2.0, -1.0, 0.25, 1.0])
    x, y = uniform((6,), "float64", 9), uniform((3,), "float64", 10)
    for name in ("convolve", "correlate"):
        for mode, n in (("full", 8), ("same", 6), ("valid", 4)):
            for a, b in ((x, y), (y, x)) if (name, mode) != ("correlate", "same") else ((x, y), (x, y[:2])):
                samples.append(Sample((a, b), call(name, (n,) if len(b) > 2 else (6,), "float64", mode=mode)))
    z, w = uniform((6,), "complex128", 11), uniform((4,), "complex128", 12)
    samples.append(Sample((z, w), call("correlate", (6,), "complex128", mode="same")))
    samples.append(Sample((w, z), call("correlate", (9,), "complex128", mode="full")))
    samples.append(Sample((x.reshape(2, 3), y), call("kron", (2, 9), "float64")))
    samples.append(Sample((x.reshape(2, 3), y), call("cross", (2, 3), "float64")))
    samples.append(Sample((y, x.reshape(2, 3)), call("cross", (2, 3), "float64")))
    samples.append(Sample((5 * x,), call("unwrap", (6,), "float64")))
    samples.append(Sample((np.append(x, 0.0),), call("sinc", (7,), "float64")))
    samples.append(Sample((x.reshape(2, 3),), call("ediff1d", (5,), "float64")))
    samples.append(Sample((uniform((4, 9), "float64", 13),), call("partition", (4, 9), "float64", kth=4, axis=1)))
    samples.append(Sample((uniform((4, 9), "float64", 14),), call("partition", (36,), "float64", kth=7, axis=None)))
    for where in (uniform((3, 4), "float64", 6), np.array([-9.0, 9.0, 0.0])):
        samples.append(Sample((where, points, heights), call("interp", where.shape, "float64")))
        samples.append(Sample((where, points, heights), call("interp", where.shape, "float64", left=7.0, right=-7.0)))
    for dtype in of_kinds("c"):
        values = uniform((4, 5), dtype, 7)
        samples.append(Sample((values, uniform((4, 5), dtype, 8)), call("power", (4, 5), dtype)))
        samples += [
            Sample((values,), call(function, (4, 5), dtype))
            for function in (
                "expm1", "log1p", "arcsin", "arccos", "arctan", "arcsinh", "arccosh", "arctanh",
            )
        ]  # fmt: skip
    sized = Sized((("float32",),), _same(1), lambda n, m: call("sort", (n, m), "float32", axis=1))
    bad = BadCall(
        (_type("float32", 3),), {"function": "sort", "static": (), "shape": (3,), "dtype": np.dtype(object)},
        DtypeError, "numpy_call: sort gives dtype object; no rule for it",
    )  # fmt: skip
    return Row(tuple(samples), sized, bad, "bits")


def _fma() -> Row:
    def samples() -> Iterator[Sample]:
        for dtype in of_kinds("f"):
            wild = corners(np.dtype(dtype))
            x, y = pairs(wild)
            yield Sample((x, y, np.resize(wild[::-1], x.shape)))
            for shape in SHAPES:
                yield Sample(tuple(filled(shape, dtype, k) for k in range(3)))
            # The rounding error of the product is what is left.
            left, right = (uniform((200,), dtype, k) for k in (4, 5))
            yield Sample((left, right, -(left * right)))
            yield Sample((uniform((2, 3), dtype, 6), filled((), dtype, 1), filled((), dtype, 4)))

    sized = Sized((("float32",) * 3, ("float64",) * 3), _same(3))
    return Row(tuple(samples()), sized, _refused("fma", 3, "f"), "bits")


KEY: tuple[Array, Array] = (np.array(0x13198A2E, np.uint32), np.array(0x03707344, np.uint32))


def _threefry() -> Row:
    def samples() -> Iterator[Sample]:
        for dtype in ("uint32", "uint64"):
            params = {"dtype": np.dtype(dtype)}
            yield Sample((*KEY, corners(np.dtype(np.uint64))), params)
            yield Sample((np.array(2**32 - 1, np.uint32), np.array(0, np.uint32), uniform((37,), "uint64", 1)), params)
            for shape in SHAPES:
                yield Sample((*KEY, uniform(shape, "uint64", 2)), params)
            keys = (uniform((4, 3), "uint32", k) for k in (3, 4))
            yield Sample((*keys, np.arange(12, dtype=np.uint64).reshape(4, 3)), params)

    sized = Sized(
        (("uint32", "uint32", "uint64"),), lambda n, m: ((), (), (n, m)), lambda n, m: {"dtype": np.dtype(np.uint32)}
    )
    bad = BadCall(
        (_type("uint32"), _type("uint32"), _type("int64", 3)), {"dtype": np.dtype(np.uint32)}, DtypeError,
        "threefry: operands ['uint32()', 'uint32()', 'int64(3,)'] for uint32; two of uint32 and one of uint64 for "
        "uint32 or uint64 are needed here",
    )  # fmt: skip
    return Row(tuple(samples()), sized, bad, "bits")


def _draw(
    name: str, dtypes: tuple[str, ...], parameters: tuple[tuple[float, ...], ...], agreement: Agreement, **params: Any
) -> Row:
    """Keyed numbers; ``parameters`` are what the distribution's own ones go through, together."""
    count = len(parameters[0])

    def samples() -> Iterator[Sample]:
        for dtype in dtypes:
            each = [np.repeat(np.array(column), 40).astype(dtype) for column in zip(*parameters, strict=True)]
            yield Sample((*KEY, np.arange(len(each[0]), dtype=np.uint64), *each), params)
            wild = corners(np.dtype(dtype))
            odd = [wild] if count == 1 else list(pairs(wild))
            yield Sample((*KEY, np.arange(len(odd[0]), dtype=np.uint64) + 2**40, *odd), params)
            for shape in SHAPES:
                numbers = [np.array(v, dtype) for v in parameters[-1]]
                yield Sample((*KEY, uniform(shape, "uint64", 1), *numbers), params)

    operands = tuple(("uint32", "uint32", "uint64", *(d,) * count) for d in dtypes)
    sized = Sized(operands, lambda n, m: ((), (), *((n, m),) * (1 + count)), lambda n, m: params)
    types = (_type("uint32"), _type("uint32"), _type("uint64", 3), *(_type("int64", 3),) * count)
    texts = [str(t) for t in types]
    text = f"{name}: operands {texts}; two of uint32, one of uint64 and parameters of {' or '.join(dtypes)} are needed"
    return Row(tuple(samples()), sized, BadCall(types, params, DtypeError, text), agreement)


_RATES = ((0.0,), (0.01,), (1.0,), (7.5,), (9.99,), (10.0,), (31.0,), (1e4,), (1e12,))
_TRIALS = (
    (0.0, 0.5),
    (1.0, 0.5),
    (10.0, 0.03),
    (7.0, 0.0),
    (7.0, 1.0),
    (1e3, 0.002),
    (40.0, 0.25),
    (60.0, 0.9),
    (1e9, 0.3),
)


def _collective(
    name: str, kinds: str, params: Mapping[str, Any], agreement: Agreement, bad: BadCall, multiple: int = 1,
    others: tuple[Mapping[str, Any], ...] = (),
) -> Row:  # fmt: skip
    """Operands of three engines; sizes along the first axis are multiples. ``others``: parameters of further calls of
    real numbers, on a first axis of just 3."""
    places = ("cpu:0", "cpu:1", "cpu:2")
    params = {"places": places, **params}

    def operands(shape: tuple[int, ...], dtype: str, seed: int) -> tuple[Array, ...]:
        return tuple(filled(shape, dtype, seed + k) for k in range(3))

    samples = [
        Sample(operands(shape, dtype, 1), params)
        for dtype in of_kinds(kinds)
        for shape in ((multiple,), (0,), (3 * multiple, 2), (multiple, 0))
    ]
    for own in others:
        for dtype in of_kinds("iuf"):
            samples.append(Sample(operands((3, 5), dtype, 4), {"places": places, **own}))
    sized = Sized((("float32",) * 3, ("int16",) * 3), lambda n, m: ((mul(n, multiple), m),) * 3, lambda n, m: params)
    return Row(tuple(samples), sized, bad, agreement)


def _bad_collective(text: str, error: type[Exception] = ShapeError, dtype: str = "float32", **params: Any) -> BadCall:
    types = (_type(dtype, 3), _type(dtype, 3), _type(dtype, 4 if "operands" in text else 3))
    return BadCall(types, {"places": ("cpu:0", "cpu:1", "cpu:2"), **params}, error, text)


_COLLECTIVES: dict[str, Row] = {
    "all_reduce": _collective(
        "all_reduce", "iufc", {"reduction": "sum"}, "bits",
        _bad_collective("all_reduce: max of dtype complex64; no rule for it", DtypeError, "complex64", reduction="max"),
        others=({"reduction": "max"}, {"reduction": "min"}),
    ),
    "all_gather": _collective(
        "all_gather", "biufc", {"axis": 0, "tiled": True}, "bits",
        _bad_collective("all_gather: axis 1 for rank 1; it must be in [0, 1)", axis=1, tiled=True),
        others=({"axis": 1, "tiled": False}, {"axis": 1, "tiled": True}),
    ),
    "reduce_scatter": _collective(
        "reduce_scatter", "iufc", {"reduction": "sum", "axis": 0, "tiled": True}, "bits",
        _bad_collective(
            "reduce_scatter: operands ['float32(3,)', 'float32(3,)', 'float32(4,)']; 3 of one type are needed here",
            reduction="sum", axis=0, tiled=True,
        ), 3,
        (
            {"reduction": "sum", "axis": 0, "tiled": False}, {"reduction": "max", "axis": 0, "tiled": True},
            {"reduction": "min", "axis": 0, "tiled": False},
        ),
    ),
    "broadcast": _collective(
        "broadcast", "biufc", {"root": 1}, "bits",
        _bad_collective("broadcast: root 3 of 3 places; it must be in [0, 3)", root=3),
    ),
    "permute": _collective(
        "permute", "biufc", {"pairs": ((0, 1), (2, 0))}, "bits",
        _bad_collective(
            "permute: sources [0, 0] of 3 places; each must be in [0, 3), and once", pairs=((0, 1), (0, 2))
        ),
        others=({"pairs": ()}, {"pairs": ((0, 1), (1, 2), (2, 0))}),
    ),
}  # fmt: skip


SAMPLES: dict[str, Row] = {
    **{name: pointwise(name, 2, "biufc", "bits") for name in ("add", "equal", "not_equal", "less", "less_equal")},
    "subtract": pointwise("subtract", 2, "iufc", "bits"),
    "multiply": pointwise("multiply", 2, "biufc", "complex"),
    "divide": pointwise("divide", 2, "fc", "complex", ("float32", "complex64")),
    **{
        name: pointwise(name, 2, "fc", "complex", ("float32",))
        for name in ("tangent_product", "tangent_quotient", "tangent_pair")
    },
    "floor_divide": pointwise("floor_divide", 2, "iuf", "bits"),
    "remainder": pointwise("remainder", 2, "iuf", "bits"),
    "negative": pointwise("negative", 1, "iufc", "bits"),
    "absolute": pointwise("absolute", 1, "biufc", "complex"),
    "maximum": pointwise("maximum", 2, "biufc", "values"),
    "minimum": pointwise("minimum", 2, "biufc", "values"),
    "copy": pointwise("copy", 1, "biufc", "bits"),
    **{name: pointwise(name, 2, "biu", "bits") for name in ("bitwise_and", "bitwise_or", "bitwise_xor")},
    "invert": pointwise("invert", 1, "biu", "bits"),
    **{
        name: pointwise(name, 1, "fc", "elementary", ("float32", "float64"))
        for name in ("exp", "log", "sin", "cos", "tanh", "sqrt")
    },
    **{name: pointwise(name, 1, "biufc", "bits", ("complex64", "float32")) for name in ("real", "imag")},
    "conjugate": pointwise("conjugate", 1, "iufc", "bits", ("complex64", "float32")),
    **{name: pointwise(name, arity, kinds, agreement) for name, arity, kinds, agreement in VOCABULARY},
    "reciprocal": pointwise("reciprocal", 1, "c", "complex", ("complex64", "complex128")),
    "power": pointwise("power", 2, "iuf", "elementary", ("float32", "uint8")),
    "required": _required(),
    "erf": pointwise("erf", 1, "f", "elementary", ("float32", "float64")),
    "erfinv": pointwise("erfinv", 1, "f", "elementary", ("float32", "float64")),
    "fma": _fma(),
    "threefry": _threefry(),
    "random_gamma": _draw("random_gamma", ("float32", "float64"), _RATES, "drawn", is_log=False),
    "random_poisson": _draw("random_poisson", ("float64",), _RATES, "bits"),
    "random_binomial": _draw("random_binomial", ("float64",), _TRIALS, "bits"),
    "where": _where(),
    "astype": _astype(),
    "bitcast": _bitcast(),
    "sum": reduction("sum", "iufc", "sum", empty=True, wild=False),
    "prod": reduction("prod", "iufc", "factors", empty=True, wild=False, values=factors),
    "max": reduction("max", "biufc", "values", empty=False),
    "min": reduction("min", "biufc", "values", empty=False),
    "argmax": reduction("argmax", "biuf", "bits", empty=False),
    "argmin": reduction("argmin", "biuf", "bits", empty=False),
    "squared_deviations": reduction("squared_deviations", "fc", "deviations", empty=False, wild=False),
    "reshape": _reshape(),
    "transpose": _transpose(),
    "broadcast_to": _broadcast_to(),
    "slice": _slice(),
    "pad": _pad(),
    "concatenate": _concatenate(),
    "iota": _iota(),
    "take": _take(),
    "slice_update": _slice_update(),
    "matmul": _matmul(),
    "mask_select": _mask_select(),
    "bincount": _bincount(),
    "cumsum": _cumsum(),
    "products_before": _products_before(),
    "recurrence": _recurrence(),
    "scatter": _scatter(),
    "mask_update": _mask_update(),
    "numpy_call": _numpy_call(),
    **_COLLECTIVES,
}
