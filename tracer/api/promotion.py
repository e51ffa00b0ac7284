"""NEP 50 promotion and NumPy's broadcasting: operands of a call in, converted and aligned operands out.

NumPy itself is asked which dtypes a ufunc computes in (``ufunc.resolve_dtypes``), once for each combination.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.dims import Extent, shape_text
from tenferro.tracer.errors import DtypeError, ShapeError, TraceError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import pointwise
from tenferro.tracer.program import DimScalar, Literal, Operand, Value
from tenferro.tracer.trace import Trace, is_supported

Dtype = np.dtype[Any]
Key = Any  # a dtype, or int, float, complex for what is weak
Shape = tuple[Extent, ...]

_INT64 = np.iinfo(np.int64)
_SAMPLES: dict[type, Any] = {int: 0, float: 0.0, complex: 0j}
_DEFAULTS: dict[type, Dtype] = {int: np.dtype("i8"), float: np.dtype("f8"), complex: np.dtype("c16")}
_resolved: dict[tuple[Any, ...], tuple[Dtype, ...]] = {}
_promoted: dict[tuple[Any, ...], Dtype] = {}


def is_weak(key: Key) -> bool:
    """Whether it stands for a Python scalar."""
    return type(key) is type


def strong(key: Key) -> Dtype:
    """The dtype it has where nothing else decides."""
    return _DEFAULTS[key] if type(key) is type else key


def resolve(ufunc: np.ufunc, keys: tuple[Key, ...], dtype: Any = None, casting: Any = "same_kind") -> tuple[Dtype, ...]:
    """The dtypes that the ufunc computes in, inputs then outputs. ``dtype`` is that of the results; DtypeError where
    the operands do not cast by the rule."""
    key = (ufunc, *keys) if dtype is None and casting == "same_kind" else (ufunc, *keys, np.dtype(dtype), casting)
    known = _resolved.get(key)
    if known is None:
        known = _resolved[key] = _ask(ufunc, keys, dtype, casting)
    return known


def _ask(ufunc: np.ufunc, keys: tuple[Key, ...], dtype: Any, casting: Any) -> tuple[Dtype, ...]:
    outputs = (None,) * ufunc.nout
    rules: dict[str, Any] = {"casting": casting}
    if dtype is not None:
        rules["signature"] = (*(None,) * ufunc.nin, *(np.dtype(dtype),) * ufunc.nout)
    try:
        found = ufunc.resolve_dtypes((*keys, *outputs), **rules)
        if any(d.kind == "O" for d in found):
            found = ufunc.resolve_dtypes((*(strong(k) for k in keys), *outputs), **rules)
    except TypeError as error:
        names = ", ".join(strong(k).name for k in keys)
        raise DtypeError(
            f"{ufunc.__name__}: dtypes {names}; NumPy has no rule for them ({error}){at(user_line())}"
        ) from None
    if not all(map(is_supported, found)):
        names = ", ".join(d.name for d in found)
        raise DtypeError(f"{ufunc.__name__}: dtypes {names}; no engine holds them{at(user_line())}")
    return tuple(found)


def result_type(keys: Sequence[Key]) -> Dtype:
    """``numpy.result_type`` with weak scalars."""
    key = tuple(keys)
    known = _promoted.get(key)
    if known is None:
        known = _promoted[key] = np.result_type(*(_SAMPLES[k] if type(k) is type else k for k in key))
    return known


def converted(trace: Trace, x: Operand, dtype: Dtype, name: str) -> Operand:
    """``x`` in the dtype; an OverflowError where a Python int does not fit, as in NumPy."""
    if isinstance(x, Value):
        return x if x.type.dtype == dtype else build.convert(trace, x, dtype)
    if beyond(trace, x, dtype):
        raise _out_of_bounds(name, x.value if isinstance(x, Literal) else trace.hint(x.expr), dtype)
    return build.convert(trace, x, dtype)


def chosen(trace: Trace, x: Operand, dtype: Dtype) -> Operand:
    """``x`` in the dtype as ``numpy.where`` and ``select`` bring it there: a Python int wraps around in it."""
    if isinstance(x, DimScalar) and beyond(trace, x, dtype):
        return trace.emit1(pointwise.astype, x, dtype=dtype)
    if isinstance(x, Literal) and type(x.value) is int and dtype.kind in "iu":
        return build.literal(build.wrapped(x.value, dtype), dtype)
    return build.convert(trace, x, dtype)


def stored(trace: Trace, x: Operand, key: Key, dtype: Dtype, name: str) -> Operand:
    """``x`` as it goes into an array of the dtype: what the trace knows of Python numbers must fit, as in NumPy; what
    has a dtype, or is known only when the program runs, converts as ``astype`` does."""
    if not is_weak(key):
        return build.convert(trace, x, dtype)
    if isinstance(x, Literal):
        check_number(name, x.value, dtype)
    return converted(trace, x, dtype, name)


def check_number(name: str, value: Any, dtype: Dtype) -> None:
    """Raise where a Python number cannot be stored as an element of the dtype: OverflowError where it is beyond an
    integer dtype, ValueError for NaN, TypeError for a complex number among real ones."""
    if type(value) is complex and dtype.kind not in "cb":
        raise DtypeError(f"{name}: complex values into {dtype.name}; x.real or abs(x) is needed{at(user_line())}")
    if type(value) not in (int, float) or dtype.kind not in "iu":
        return
    if value != value:
        raise ValueError(f"{name}: NaN into {dtype.name}; a number, or a floating dtype, is needed{at(user_line())}")
    info = np.iinfo(dtype)
    if value in (math.inf, -math.inf) or not info.min <= int(value) <= info.max:
        raise _out_of_bounds(name, value, dtype)


def _out_of_bounds(name: str, value: Any, dtype: Dtype) -> OverflowError:
    kind, needed = ("float", "a number") if type(value) is float else ("integer", "an integer")
    return OverflowError(
        f"{name}: Python {kind} {value} out of bounds for {dtype.name}; {needed} in the dtype's range, or an "
        f"array of a wider dtype, is needed{at(user_line())}"
    )


def beyond(trace: Trace, x: Operand, dtype: Dtype) -> int:
    """1 where a Python int, a size or an int argument is above the integer dtype's range, -1 below it, else 0.

    What holds for a symbol in this call becomes a guard."""
    if dtype.kind not in "iu" or isinstance(x, Value):
        return 0
    info = np.iinfo(dtype)
    if isinstance(x, Literal):
        if type(x.value) is not int:
            return 0
        return -1 if x.value < info.min else int(x.value > info.max)
    if x.dtype.kind not in "iu":
        return 0
    value = trace.hint(x.expr)
    if value is None and info.max < _INT64.max:
        raise TraceError(
            f"{dtype.name}: {trace.describe(x.expr)} beside an array of this dtype, known only when the program runs; "
            f"x.astype(numpy.int64) holds every size{at(user_line())}"
        )
    # What is within 64 bits now needs no guard for 64 bits: the run raises where an expression outgrows them.
    narrow_below, narrow_above = info.min > _INT64.min, info.max < _INT64.max
    if (narrow_below or (value or 0) < info.min) and not trace.guard("<=", int(info.min), x.expr):
        return -1
    return int((narrow_above or (value or 0) > info.max) and not trace.guard("<=", x.expr, int(info.max)))


def same_shape(trace: Trace, a: Shape, b: Shape) -> bool:
    """Whether the shapes are one, taking the guards so far into account."""
    if a is b or a == b:
        return True
    return bool(trace.unified) and tuple(map(trace.canonical, a)) == tuple(map(trace.canonical, b))


def is_result_of(trace: Trace, joined: Shape, shape: Shape) -> bool:
    """Whether a target of ``shape`` takes a result of shape ``joined``; equalities that no leaf stands for are
    guards."""
    if len(joined) != len(shape):
        return False
    return all(trace.guard("==", a, b) for a, b in zip(joined, shape, strict=True))


def broadcast_shapes(trace: Trace, name: str, shapes: Sequence[Shape]) -> Shape:
    """NumPy's rule: sizes are equal, or 1. Equality is asked first; what is assumed becomes a guard."""
    first = shapes[0]
    if all(s is first or s == first for s in shapes):
        return first
    rank = max(len(s) for s in shapes)
    result: list[Extent] = [1] * rank
    for axis in range(-rank, 0):
        for shape in shapes:
            if len(shape) >= -axis:
                result[axis] = _join(trace, name, result[axis], shape[axis], shapes)
    return tuple(result)


def _join(trace: Trace, name: str, a: Extent, b: Extent, shapes: Sequence[Shape]) -> Extent:
    if a is b or b == 1:
        return a
    if a == 1:
        return b
    if trace.guard("==", a, b):
        canonical = trace.canonical(b)
        return canonical if isinstance(canonical, int) else trace.canonical(a)
    if trace.guard("==", a, 1):
        return b
    if trace.guard("==", b, 1):
        return a
    raise shape_mismatch(trace, name, shapes)


def sizes_text(trace: Trace, shape: Shape) -> str:
    """The shape as numbers, with symbols where only the run knows them."""
    hints = [trace.hint(n) for n in shape]
    return shape_text([n if h is None else h for n, h in zip(shape, hints, strict=True)])


def shape_mismatch(trace: Trace, name: str, shapes: Sequence[Shape]) -> ShapeError:
    """The error about shapes that do not broadcast."""
    return ShapeError(
        f"{name}: shapes {' and '.join(sizes_text(trace, s) for s in shapes)}; they do not broadcast: sizes must be "
        f"equal or 1 on each axis{at(user_line())}"
    )


def _stretches(trace: Trace, a: Extent, b: Extent) -> bool:
    """Whether ``a``, which fits ``b``, does so as 1: a guard may say that an expression is 1."""
    return a == 1 or (_present(trace, a) == 1 and _present(trace, b) != 1)


def _present(trace: Trace, n: Extent) -> int | None:
    """The size in this call, also where a selection under a captured mask gives it."""
    from tenferro.tracer.contents import runtime_size

    value = trace.hint(n)
    return runtime_size(trace, n, "broadcast") if value is None else value


def aligned(trace: Trace, x: Operand, shape: Shape) -> Operand:
    """``x`` broadcast to ``shape``; rank 0 stays as it is."""
    own = x.type.shape
    if not own or own is shape or own == shape:
        return x
    if same_shape(trace, own, shape):
        return x
    trailing = shape[len(shape) - len(own) :]
    pairs = [(trace.canonical(a), trace.canonical(b)) for a, b in zip(own, trailing, strict=True)]
    if any(a not in (1, b) for a, b in pairs):
        # Equal, or 1, by a guard on an expression that no leaf can stand for: the same array under the sizes meant.
        meant = tuple(1 if _stretches(trace, a, b) else n for (a, b), n in zip(pairs, trailing, strict=True))
        x = build.reshape(trace, x, meant)
    return build.broadcast(trace, x, shape)


def broadcast_into(trace: Trace, name: str, x: Operand, shape: Shape, stretches: bool = True) -> Operand:
    """``x`` broadcast to just this shape, which a target or a condition's array has; a ShapeError where it does not
    fit. Rank 0 stays as it is. Without ``stretches`` the shapes must be equal."""
    own = x.type.shape
    if not own and (stretches or not shape):
        return x
    joins = stretches and len(own) <= len(shape)
    if not is_result_of(trace, broadcast_shapes(trace, name, [shape, own]) if joins else own, shape):
        raise out_mismatch(name, sizes_text(trace, own), sizes_text(trace, shape), stretches)
    return aligned(trace, x, shape)


def out_mismatch(name: str, found: str, shape: str, stretches: bool) -> ShapeError:
    """The error about a result that does not fit the array it is written into."""
    needed = "one that broadcasts to it" if stretches else "one of its shape"
    return ShapeError(
        f"{name}: a result of shape {found} into an array of shape {shape}; {needed} is needed{at(user_line())}"
    )


def broadcast_operands(trace: Trace, name: str, operands: Sequence[Operand]) -> list[Operand]:
    """All operands of rank above 0 in one shape."""
    shapes = [x.type.shape for x in operands if x.type.shape]
    if len(shapes) < 2:
        return list(operands)
    shape = broadcast_shapes(trace, name, shapes)
    return [aligned(trace, x, shape) for x in operands]


def as_bool(trace: Trace, x: Operand) -> Operand:
    """``x != 0``."""
    if x.type.dtype.kind == "b":
        return x
    return trace.emit1(pointwise.not_equal, x, build.literal(0, x.type.dtype))
