"""The native scalar operations that every engine has: in go opaque values with a dtype, out come values.

Everything else in this folder is an expansion into these. An engine implements ``Builder`` once and then has every
function. No operation here may be given an argument for which machines differ: see each contract.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from tenferro.tracer.records import dataclass

Dtype: TypeAlias = np.dtype[Any]
Value: TypeAlias = Any  # has a ``dtype``; what it holds is the builder's own
Values: TypeAlias = Any  # one Value, or a tuple of them
CallSize: TypeAlias = Literal["usual", "rare", "compact"]

BOOL = np.dtype(np.bool_)
I8, I16, I32, I64 = (np.dtype(f"i{n}") for n in (1, 2, 4, 8))
U8, U16, U32, U64 = (np.dtype(f"u{n}") for n in (1, 2, 4, 8))
F16, F32, F64 = (np.dtype(f"f{n}") for n in (2, 4, 8))
C64, C128 = np.dtype("c8"), np.dtype("c16")


@dataclass(frozen=True, slots=True)
class Complex:
    """A complex value: two real values of one float dtype. Builders never see it."""

    re: Value
    im: Value

    @property
    def dtype(self) -> Dtype:
        return np.dtype(f"c{2 * self.re.dtype.itemsize}")


class Builder(Protocol):
    """Operands of one operation have one dtype unless it says otherwise. float16 takes part in ``const``, ``convert``
    to and from float32, ``bitcast`` and ``select`` only."""

    def const(self, value: float, dtype: Dtype) -> Value:
        """A constant of a bool, integer or float dtype; floats are rounded to nearest once."""
        ...

    def add(self, x: Value, y: Value) -> Value:
        """Integers wrap; floats round to nearest even; so do ``sub`` and ``mul``."""
        ...

    def sub(self, x: Value, y: Value) -> Value: ...

    def mul(self, x: Value, y: Value) -> Value: ...

    def div(self, x: Value, y: Value) -> Value:
        """Floats only: engines have no safe vector division of integers."""
        ...

    def fma(self, x: Value, y: Value, z: Value) -> Value:
        """``x * y + z`` rounded once; float32 and float64."""
        ...

    def neg(self, x: Value) -> Value:
        """Integers wrap; floats flip the sign bit, of NaN too."""
        ...

    def abs(self, x: Value) -> Value:
        """Integers wrap (the least one stays); floats clear the sign bit."""
        ...

    def sqrt(self, x: Value) -> Value: ...

    def floor(self, x: Value) -> Value: ...

    def ceil(self, x: Value) -> Value: ...

    def trunc(self, x: Value) -> Value: ...

    def rint(self, x: Value) -> Value:
        """To the nearest integer, ties to even."""
        ...

    def copysign(self, x: Value, y: Value) -> Value: ...

    def lt(self, x: Value, y: Value) -> Value:
        """Comparisons give bool; with a NaN all are false except ``ne``."""
        ...

    def le(self, x: Value, y: Value) -> Value: ...

    def eq(self, x: Value, y: Value) -> Value: ...

    def ne(self, x: Value, y: Value) -> Value: ...

    def select(self, condition: Value, x: Value, y: Value) -> Value:
        """``x`` where the bool ``condition`` holds, else ``y``."""
        ...

    def and_(self, x: Value, y: Value) -> Value:
        """Bitwise, on integers and bool; so are ``or_``, ``xor`` and ``not_``."""
        ...

    def or_(self, x: Value, y: Value) -> Value: ...

    def xor(self, x: Value, y: Value) -> Value: ...

    def not_(self, x: Value) -> Value: ...

    def shl(self, x: Value, n: Value) -> Value:
        """``n`` has the dtype of ``x`` and lies in [0, bits of x)."""
        ...

    def shr(self, x: Value, n: Value) -> Value:
        """Copies the sign bit for signed dtypes, brings in zeros for unsigned ones; ``n`` as in ``shl``."""
        ...

    def popcount(self, x: Value) -> Value: ...

    def clz(self, x: Value) -> Value:
        """Leading zero bits; the number of bits for 0."""
        ...

    def convert(self, x: Value, dtype: Dtype) -> Value:
        """Machine conversion: bool to number, integer to integer (wraps), integer to float and float to float
        (nearest even), float to integer for values whose truncation is in range. float16 only from and to float32."""
        ...

    def bitcast(self, x: Value, dtype: Dtype) -> Value:
        """The same bits as an integer or float dtype of equal size."""
        ...

    def lookup(self, table: tuple[float, ...], dtype: Dtype, index: Value) -> Value:
        """``table[index]``, constants of ``dtype``; the int32 or int64 ``index`` lies in range. Engines may hold
        up to sixteen 8-byte constants in registers."""
        ...

    def if_any(self, condition: Value, slow: Callable[[], Values], fast: Callable[[], Values]) -> Values:
        """``slow()`` if some lane's ``condition`` holds, else ``fast()``: a branch that all lanes take together, and
        the hint that it is seldom taken. Both give equal dtypes, and equal bits in lanes whose condition is false."""
        ...

    def while_any(
        self, condition: Callable[..., Value], body: Callable[..., Sequence[Value]], *values: Value
    ) -> tuple[Value, ...]:
        """Repeats ``values = body(*values)`` while ``condition(*values)`` holds in some lane. ``body`` must leave the
        values of finished lanes as they are, so that a lane's result does not depend on its neighbours."""
        ...

    def call(self, name: str, function: Callable[..., Values], *args: Value, size: CallSize = "usual") -> Values:
        """``function(builder, *args)``; an engine may make it a function of its own, one per name and dtypes.

        ``rare`` is for what runs seldom, so that its code should not be repeated at every use; ``compact`` for what is
        seldom or long besides: small code matters more than speed. No bools go in or out of a compact function."""
        ...
