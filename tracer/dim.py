"""What users hold as a size under tracing: a size expression and its value in this call in, Python's int protocol out.

A ``Dim`` answers comparisons from the call being traced and records a ShapeGuard with the user's line; whatever needs
the number itself (``int``, ``range``, ``hash``, ``str``, ``math``) pins the size. It is no ``int`` subclass, since C
code would read the number without a record, but its ``__class__`` says int.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenferro.tracer.complaints import no_integer
from tenferro.tracer.dims import Extent, add, floordiv, maximum, minimum, mod, mul, sub
from tenferro.tracer.errors import DtypeError, LeakError
from tenferro.tracer.lines import SourceLine, at, user_line
from tenferro.tracer.trace import Relation, Trace, current_trace

Scalar = Any  # a traced rank-0 array: what arithmetic that leaves the integers makes


def _scalar(name: str, *args: object) -> Scalar:
    """What leaves the integers runs through the NumPy-level functions, which stand above this file."""
    from tenferro.tracer.api.record import API
    from tenferro.tracer.traced import is_number, number_of

    result = API[name].function(*args)
    return number_of(result) if all(map(is_number, args)) else result


_MOST_PLACES = 19  # of an int64; half of any higher unit is beyond all of them


class Dim:
    """A size: input extent, int argument, or an expression of them."""

    __slots__ = ("_trace", "expr", "hint", "line")
    __array_priority__ = 1000.0

    def __init__(self, trace: Trace, expr: Extent, hint: int | None, line: SourceLine | None) -> None:
        self._trace = trace
        self.expr = expr
        self.hint = hint
        self.line = line

    @property
    def __class__(self) -> type:
        return int

    @__class__.setter
    def __class__(self, value: type) -> None:
        raise TypeError("a Dim's class cannot be changed")

    def live_trace(self) -> Trace:
        """The trace it belongs to; a LeakError names where it was made if that has ended or is not this one."""
        if not self._trace.alive or current_trace() is not self._trace:
            made = f"{self.line}" if self.line is not None else "an unknown line"
            raise LeakError(
                f"Dim {self._trace.describe(self.expr)}: used after the trace of {self._trace.name} has ended; it was "
                f"made at {made}; return sizes instead of storing them{at(user_line())}"
            )
        return self._trace

    # -- integer arithmetic ----------------------------------------------------------------------------------------

    def _combine(self, other: object, rule: Callable[[Extent, Extent], Extent], name: str, swap: bool) -> Any:
        if type(other) is float or type(other) is complex:
            return _scalar(name, other, self) if swap else _scalar(name, self, other)
        extent = as_extent(other)
        if extent is None:
            return NotImplemented
        trace = self.live_trace()
        a, b = (extent, self.expr) if swap else (self.expr, extent)
        if rule in (floordiv, mod) and trace.guard("==", b, 0):
            raise ZeroDivisionError(f"{name}: divisor {trace.describe(b)}; it must not be 0{at(user_line())}")
        return make_dim(trace, rule(a, b))

    def __add__(self, other: object) -> Any:
        return self._combine(other, add, "add", False)

    def __radd__(self, other: object) -> Any:
        return self._combine(other, add, "add", True)

    def __sub__(self, other: object) -> Any:
        return self._combine(other, sub, "subtract", False)

    def __rsub__(self, other: object) -> Any:
        return self._combine(other, sub, "subtract", True)

    def __mul__(self, other: object) -> Any:
        if type(other) in (list, tuple, str, bytes):
            return other * int(self)  # type: ignore[operator]
        return self._combine(other, mul, "multiply", False)

    def __rmul__(self, other: object) -> Any:
        return self.__mul__(other) if type(other) in (list, tuple, str) else self._combine(other, mul, "multiply", True)

    def __floordiv__(self, other: object) -> Any:
        return self._combine(other, floordiv, "floor_divide", False)

    def __rfloordiv__(self, other: object) -> Any:
        return self._combine(other, floordiv, "floor_divide", True)

    def __mod__(self, other: object) -> Any:
        return self._combine(other, mod, "remainder", False)

    def __rmod__(self, other: object) -> Any:
        return self._combine(other, mod, "remainder", True)

    def __divmod__(self, other: object) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: object) -> Any:
        return other // self, other % self

    def __neg__(self) -> Any:
        return make_dim(self.live_trace(), mul(self.expr, -1))

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        trace = self.live_trace()
        if trace.proves("<=", 0, self.expr):
            return self
        return make_dim(trace, maximum(self.expr, mul(self.expr, -1)))

    def __truediv__(self, other: object) -> Any:
        return _scalar("divide", self, other) if _is_number(other) else NotImplemented

    def __rtruediv__(self, other: object) -> Any:
        return _scalar("divide", other, self) if _is_number(other) else NotImplemented

    def __pow__(self, exponent: object) -> Any:
        if type(exponent) is int and 0 <= exponent <= 8:
            return math.prod([self] * exponent) if exponent else 1
        if type(exponent) is int or isinstance(exponent, Dim):
            return int(self) ** int(exponent)
        return _scalar("power", self, exponent) if _is_number(exponent) else NotImplemented

    def __rpow__(self, base: object) -> Any:
        if type(base) is int:
            return base ** int(self)
        return _scalar("power", base, self) if type(base) in (float, complex) else NotImplemented

    # -- comparisons: answered from the hint, recorded as guards ---------------------------------------------------

    def _compare(self, other: object, relation: Relation, swap: bool) -> Any:
        if type(other) is float:
            return self._compare_float(other, relation, swap)
        extent = as_extent(other)
        if extent is None:
            return NotImplemented
        trace = self.live_trace()
        return trace.guard(relation, extent, self.expr) if swap else trace.guard(relation, self.expr, extent)

    def _compare_float(self, other: float, relation: Relation, swap: bool) -> bool:
        if math.isnan(other):
            return False
        if math.isinf(other):
            return relation != "==" and (other > 0) != swap
        if other.is_integer():
            return bool(self._compare(int(other), relation, swap))
        if relation == "==":
            return False
        whole = math.ceil(other) if swap else math.floor(other)
        return bool(self._compare(whole, "<=", swap))

    def __eq__(self, other: object) -> Any:
        return self._compare(other, "==", False)

    def __ne__(self, other: object) -> Any:
        answer = self._compare(other, "==", False)
        return answer if answer is NotImplemented else not answer

    def __lt__(self, other: object) -> Any:
        return self._compare(other, "<", False)

    def __le__(self, other: object) -> Any:
        return self._compare(other, "<=", False)

    def __gt__(self, other: object) -> Any:
        return self._compare(other, "<", True)

    def __ge__(self, other: object) -> Any:
        return self._compare(other, "<=", True)

    def __bool__(self) -> bool:
        return not self.live_trace().guard("==", self.expr, 0)

    # -- the number itself: pins the size ----------------------------------------------------------------------------

    def __index__(self) -> int:
        trace = self.live_trace()
        return trace.concrete(self.expr, f"int of {trace.describe(self.expr)}")

    __int__ = __trunc__ = __index__

    def __float__(self) -> float:
        return float(self.__index__())

    def __hash__(self) -> int:
        return hash(self.__index__())

    def __round__(self, digits: Any = None) -> Any:
        places = 0 if digits is None else operator.index(digits)
        if places >= 0:
            return self
        if places < -_MOST_PLACES:
            return 0
        unit = 10**-places
        whole, rest = divmod(self + unit // 2, unit)
        # Halfway lies the rest that is 0: an odd multiple gives way to the even one below it.
        return (whole - (1 - smallest(rest, 1)) * (whole % 2)) * unit

    __floor__ = __ceil__ = conjugate = __pos__

    def __and__(self, other: Any) -> Any:
        return _on_bits(operator.and_, self, other)

    def __or__(self, other: Any) -> Any:
        return _on_bits(operator.or_, self, other)

    def __xor__(self, other: Any) -> Any:
        return _on_bits(operator.xor, self, other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __lshift__(self, other: Any) -> Any:
        return NotImplemented if as_extent(other) is None else self * (1 << int(other))

    def __rshift__(self, other: Any) -> Any:
        return NotImplemented if as_extent(other) is None else self // (1 << int(other))

    def __rlshift__(self, other: Any) -> Any:
        return _on_bits(operator.lshift, other, self)

    def __rrshift__(self, other: Any) -> Any:
        return _on_bits(operator.rshift, other, self)

    def __invert__(self) -> Any:
        return -self - 1

    def bit_length(self) -> int:
        """As ``int.bit_length``; pins the size."""
        return int(self).bit_length()

    real = property(lambda self: self)
    imag = property(lambda self: 0)
    numerator = real
    denominator = property(lambda self: 1)

    # -- text: that of the number, which pins the size ---------------------------------------------------------------

    def __str__(self) -> str:
        return self.__format__("")

    def __repr__(self) -> str:
        # Debuggers ask, whatever has ended.
        is_live = self._trace.alive and current_trace() is self._trace
        return self.__format__("") if is_live else f"<size {self._trace.describe(self.expr)} of {self._trace.name}>"

    def __format__(self, spec: str) -> str:
        trace = self.live_trace()
        return format(trace.concrete(self.expr, f"text of {trace.describe(self.expr)}"), spec)

    # -- NumPy -------------------------------------------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        self.live_trace()
        integer = _INTEGER_UFUNCS.get(ufunc)
        if method == "__call__" and not kwargs and integer and all(as_extent(x) is not None for x in inputs):
            return integer(*(int(x) if isinstance(x, np.integer) else x for x in inputs))  # else NumPy asks again
        from tenferro.tracer.dispatch import array_ufunc

        return array_ufunc(ufunc, method, *inputs, **kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        from tenferro.tracer.dispatch import array_function

        self.live_trace()
        return array_function(function, args, kwargs)


def as_extent(x: object) -> Extent | None:
    """The size that an int, a NumPy integer or a Dim stands for; None for anything else."""
    if type(x) is int:
        return x
    if isinstance(x, Dim) or type(x) is Dim:
        x.live_trace()
        return x.expr
    if type(x) is bool or isinstance(x, np.integer):
        return int(x)
    return None


def integer(x: Any, name: str, what: str) -> int:
    """An argument that must be a number while tracing: a Dim is pinned; a DtypeError for what is no integer."""
    if not hasattr(type(x), "__index__") or getattr(x, "ndim", False):
        raise DtypeError(f"{name}: {what} {no_integer(x)}{at(user_line())}")
    return int(x.__index__())


def _on_bits(rule: Callable[[int, int], int], a: Any, b: Any) -> Any:
    """An operation on the bits of two integers, which pins the sizes among them."""
    return NotImplemented if as_extent(a) is None or as_extent(b) is None else rule(int(a), int(b))


def pinned(x: Any) -> Any:
    """``x`` with every Dim in it, inside tuples and lists too, as the number that it is in this call; the program then
    serves only that number. NumPy's scalars become Python's."""
    if type(x) is Dim:
        return int(x)
    if isinstance(x, np.integer | np.floating | np.bool_):
        return x.item()
    return type(x)(map(pinned, x)) if type(x) in (tuple, list) else x


def _is_number(x: object) -> bool:
    return type(x) in (int, float, complex, bool, Dim) or isinstance(x, np.generic)


def make_dim(trace: Trace, extent: Extent) -> Any:
    """A Dim for a symbolic size, the int itself for a constant one."""
    extent = trace.canonical(extent)
    return extent if isinstance(extent, int) else Dim(trace, extent, trace.hint(extent), user_line())


def shape_of(trace: Trace, shape: Sequence[Extent]) -> tuple[Any, ...]:
    """A shape as users see it: Dims that share one note of where they were made, and plain ints."""
    line = None if all(isinstance(n, int) for n in shape) else user_line()
    canonical = [trace.canonical(n) for n in shape]
    return tuple(n if isinstance(n, int) else Dim(trace, n, trace.hint(n), line) for n in canonical)


def smallest(a: Any, b: Any) -> Any:
    """The smaller of two sizes, without a guard."""
    return _extreme(a, b, minimum)


def largest(a: Any, b: Any) -> Any:
    """The larger of two sizes, without a guard."""
    return _extreme(a, b, maximum)


def _extreme(a: Any, b: Any, rule: Callable[[Extent, Extent], Extent]) -> Any:
    left, right = as_extent(a), as_extent(b)
    assert left is not None and right is not None
    symbol = next((x for x in (a, b) if type(x) is Dim), None)
    if symbol is None:
        return rule(left, right)
    trace = symbol.live_trace()
    return make_dim(trace, rule(left, right))


_INTEGER_UFUNCS: dict[Any, Callable[..., Any]] = {
    np.add: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
    np.floor_divide: operator.floordiv,
    np.remainder: operator.mod,
    np.negative: operator.neg,
    np.absolute: operator.abs,
    np.minimum: smallest,
    np.maximum: largest,
}
