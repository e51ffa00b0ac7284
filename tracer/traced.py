"""The array that a function sees while it is traced: a variable with NumPy's interface.

In: what the function does to it. Out: operations of the running trace; views and in-place writes mean what they mean
in NumPy, through the cells of ``tenferro.tracer.cells``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tenferro.tracer import build, complaints
from tenferro.tracer.api.methods import ArrayMethods
from tenferro.tracer.api.record import API
from tenferro.tracer.cells import READ_ONLY, AnyArray, Cell, Reshaped, Step, Transposed, is_contiguous, undoes, whole
from tenferro.tracer.contents import contents, outside_element
from tenferro.tracer.dim import Dim, make_dim, shape_of
from tenferro.tracer.dims import Extent, product
from tenferro.tracer.errors import DtypeError, MutationError, RangeError, ShapeError, TraceError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.pinning import pinned_value
from tenferro.tracer.program import ArrayType, DimScalar, Literal, Operand
from tenferro.tracer.trace import Trace, current_trace, is_tenferro_array
from tenferro.tracer.varying import keep_slope

INT64 = np.dtype(np.int64)
BOOL = np.dtype(np.bool_)
# Methods without a traced counterpart that only read; they serve captured arrays.
# Methods of NumPy's own on present elements; what serves where these are being differentiated.
_CONCRETE_METHODS = {"dumps": "", "flat": "; x.reshape(-1) has the same elements", "tofile": ""}
# Operators; methods of the same names take no argument that could be a sequence.
_ARITHMETIC = frozenset({"add", "subtract", "multiply", "divide", "floor_divide", "remainder", "divmod", "power"})
_NUMBERS = {"f": float, "c": complex}  # the classes of Python numbers that are arguments, as isinstance asks
_WEAK_KINDS: dict[str, Any] = {"b": BOOL, "i": int, "u": int, "f": float, "c": complex}


class TracedArray(ArrayMethods):
    """A variable: it holds a cell, or is a view (``step``) of ``parent``'s. ``scalar`` marks what NumPy would return
    as a NumPy scalar: in-place operators rebind it."""

    __slots__ = ("_cached", "_cell", "_contiguous", "_parent", "_scalar", "_seen", "_step", "_writeable", "type")
    __array_priority__ = 1000.0
    type: ArrayType

    def __init__(
        self,
        cell: Cell,
        type_: ArrayType,
        parent: TracedArray | None = None,
        step: Step | None = None,
        scalar: bool = False,
    ) -> None:
        self._cell = cell
        self.type = type_
        self._parent = parent
        self._step = step
        self._scalar = scalar
        self._cached: Operand | None = None
        self._seen = -1
        self._contiguous = True
        self._writeable = True
        if parent is not None and step is not None:
            self._contiguous = is_contiguous(step, parent._contiguous, parent.type.shape)
            self._writeable = parent._writeable and not isinstance(step, READ_ONLY)

    @property
    def __class__(self) -> Any:
        return _NUMBERS.get(self.type.dtype.kind, np.ndarray) if self.type.weak else np.ndarray

    @__class__.setter
    def __class__(self, value: Any) -> None:
        raise TypeError("a traced array's class cannot be changed")

    # -- values ------------------------------------------------------------------------------------------------------

    def live_trace(self) -> Trace:
        """The trace it belongs to; a LeakError names where it was made if that has ended or is not this one."""
        trace = self._cell.trace
        if not trace.alive or current_trace() is not trace:
            raise complaints.leaked(self)
        return trace

    def read(self) -> Operand:
        """The operand that has its value now."""
        cell = self._cell
        if self._parent is None:
            return cell.value if cell.value is not None and not cell.elements else cell.read()
        if self._seen != cell.version or self._cached is None:
            assert self._step is not None
            found = self._step.read(cell.trace, self._parent.read())
            if cell.trace.scope is not cell.scope:
                return found  # which is taken out again
            self._cached, self._seen = found, cell.version
        return self._cached

    def known(self) -> AnyArray | None:
        """The ndarray behind it (a NumPy view where this is one), if the trace has made every element itself."""
        if self._parent is None or self._cell.known is None:
            return self._cell.known
        base = self._parent.known()
        assert base is not None and self._step is not None
        return self._step.of(base)

    def stepped(self, step: Step, shape: tuple[Extent, ...], dtype: np.dtype[Any] | None = None) -> TracedArray:
        """Another array over the same memory; of a scalar, which has none that could be written, over its own. Under
        another shape of rank 0 a NumPy scalar is itself; a Python number becomes an array."""
        type_ = ArrayType(self.type.dtype if dtype is None else dtype, shape)
        if self._scalar:
            if not (shape or self.type.weak) and isinstance(step, Reshaped | Transposed):
                return self
            base = fresh(self._cell.trace, self.read(), scalar=False)
            return TracedArray(base._cell, type_, base, step)
        if self._parent is not None and undoes(step, self._step, self._parent.type.shape):
            return TracedArray(self._cell, type_, self._parent, whole(shape))
        return TracedArray(self._cell, type_, self, step)

    def store(self, value: Operand) -> None:
        """Write the whole of this array; ``value`` has its dtype, and its shape or rank 0."""
        self.check_writeable()
        cell = self._cell
        cell.become_traced()
        trace = cell.trace
        node: TracedArray = self
        while node._parent is not None:
            step = node._step
            assert step is not None and not isinstance(step, READ_ONLY)
            value = step.write(trace, node._parent.read(), value)
            node = node._parent
        if node is self:
            value = build.broadcast(trace, value, self.type.shape)
        cell.set(value)

    def check_writeable(self) -> None:
        """Raise unless the function may write here."""
        self.live_trace()
        cell = self._cell
        if self._scalar:
            raise complaints.scalar_write("write")
        is_around = cell.trace.scope is not None and cell.trace.scope is not cell.scope
        if is_around or (cell.origin is not None and not cell.donated):
            raise complaints.not_own(cell)
        if not self._writeable:
            raise MutationError(
                f"write: the array is a read-only view (broadcast, real, windows); write into a copy{at(user_line())}"
            )

    # -- attributes --------------------------------------------------------------------------------------------------

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.type.dtype

    @dtype.setter
    def dtype(self, value: Any) -> None:
        raise TraceError(f"dtype: assigned, which a traced array's cannot be; x.view(dtype) is one{at(user_line())}")

    @property
    def shape(self) -> tuple[Any, ...]:
        return shape_of(self.live_trace(), self.type.shape)

    @shape.setter
    def shape(self, value: Any) -> None:
        raise TraceError(f"shape: assigned, which a traced array's cannot be; x.reshape(shape) is one{at(user_line())}")

    @property
    def ndim(self) -> int:
        return len(self.type.shape)

    @property
    def size(self) -> Any:
        return make_dim(self.live_trace(), product(self.type.shape))

    @property
    def itemsize(self) -> int:
        return self.type.dtype.itemsize

    @property
    def nbytes(self) -> Any:
        return self.size * self.itemsize

    @property
    def device(self) -> str:
        return "cpu"

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        if not self._cell.trace.alive:
            raise complaints.leaked(self)
        if self._cell.known is not None:
            from tenferro.tracer.dispatch import call

            return call(name, args, kwargs)
        if self.type.weak and name in _ARITHMETIC:
            complaints.refuse_sequences(name, args)
        elif self._scalar and name == "multiply":
            complaints.refuse_sequences(name, args, "a traced number")
        try:
            result = API[name].function(*args, **kwargs)
        except TraceError as error:
            from tenferro.tracer.dispatch import concretely

            return concretely(API[name], args, kwargs, error)
        is_own = self.type.weak and all(x is None or is_number(x) for x in args)
        return number_of(result) if is_own else result

    def __getitem__(self, key: Any) -> Any:
        if self._cell.input is not None and self._parent is None and self._cell.trace.is_once:
            element = outside_element(self._cell.trace, self._cell.input, key)
            if element is not None:
                return as_traced(self._cell.trace, element, "getitem")
        return self._call("getitem", self, key)

    # -- writes ------------------------------------------------------------------------------------------------------

    def __setitem__(self, key: Any, value: Any) -> None:
        from tenferro.tracer.dispatch import set_item

        set_item(self, key, value)

    def _inplace(self, name: str, other: Any) -> Any:
        if self._scalar:
            return self._call(name, self, other)
        from tenferro.tracer.dispatch import update_in_place

        return update_in_place(self, name, other)

    # -- what only a concrete value has ------------------------------------------------------------------------------

    def __len__(self) -> int:
        if not self.type.shape:
            raise ShapeError(f"len: an array of rank 0; rank 1 or more is needed{at(user_line())}")
        return self.live_trace().concrete(self.type.shape[0], "len")

    def __iter__(self) -> Iterator[Any]:
        if not self.type.shape:
            raise DtypeError(f"iteration: an array of rank 0; rank 1 or more is needed{at(user_line())}")
        return (self[k] for k in range(len(self)))

    def _number(self, asked: str) -> Any:
        """The number itself where the trace has made it, where it is made of sizes alone, which pins them, or of
        captured arrays, whose contents are guarded then."""
        known = self._known_number(asked)
        if known is None:
            raise complaints.concrete(asked)
        return known

    def _constant(self, asked: str) -> Any:
        """The number, which derivatives take for a constant then."""
        found = self._number(asked)
        self._keep_slope(asked)
        return found

    def _keep_slope(self, asked: str, cure: str = "") -> None:
        if self._cell.trace.varying and self.known() is None:
            keep_slope(self._cell.trace, self.read(), asked, cure)

    def _known_number(self, asked: str) -> Any:
        trace = self.live_trace()
        known: Any = self.known()
        if known is None and not self.type.shape:
            known = pinned_value(trace, self.read())
        return self._contents(asked) if known is None else known

    def _contents(self, asked: str) -> AnyArray | None:
        """The present elements, read-only, where captured arrays alone take part in them."""
        if asked != "index" and complaints.is_store():
            return None  # NumPy stores it into an array from outside, which would happen at the trace alone
        return contents(self._cell.trace, self.read(), asked)

    def __bool__(self) -> bool:
        return bool(self._number("bool"))

    def __int__(self) -> int:
        return int(self._number("int"))

    def __float__(self) -> float:
        return float(self._constant("float"))

    def __round__(self, digits: int | None = None) -> Any:
        if not (self._scalar or self.type.weak):
            raise DtypeError(f"round: of an array; numpy.round(x, digits) rounds its elements{at(user_line())}")
        return round(float(self._number("int"))) if digits is None else self.round(digits)

    def __complex__(self) -> complex:
        return complex(self._constant("complex"))

    def __index__(self) -> int:
        known = self._known_number("index")
        if known is None:
            raise complaints.index()
        if known.dtype.kind not in "iub":
            raise DtypeError(f"index: {complaints.no_integer(self, of_sizes=True)}{at(user_line())}")
        return int(known.__index__())

    def item(self, *args: Any) -> Any:
        """The Python scalar; only of arrays that the trace itself has made."""
        return self._constant("item").item(*args)

    def tolist(self) -> Any:
        """Nested lists; only of arrays that the trace itself has made."""
        return self._constant("tolist").tolist()

    def tobytes(self, order: Any = "C") -> bytes:
        """The bytes; only of arrays that the trace itself has made."""
        return bytes(self._constant("tobytes").tobytes(order))

    def __contains__(self, value: Any) -> bool:
        return value in self._number("in")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        known = self._known_number("numpy.asarray")
        if known is None:
            raise complaints.untraced_use()
        self._keep_slope("numpy.asarray")
        return np.array(known, dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from tenferro.tracer.dispatch import array_ufunc

        self.live_trace()
        return array_ufunc(ufunc, method, *inputs, **kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        from tenferro.tracer.dispatch import array_function

        self.live_trace()
        return array_function(function, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in _CONCRETE_METHODS and (found := self._contents(f"ndarray.{name}")) is not None:
            if name != "tofile":
                self._keep_slope(f"ndarray.{name}", _CONCRETE_METHODS[name])
            return getattr(found, name)
        raise AttributeError(f"{complaints.no_attribute(name)}{at(user_line())}")

    def __repr__(self) -> str:
        # Debuggers and error texts ask too, and must get one.
        return self._text("repr") if self.type.weak and complaints.is_asked_by_user() else f"<traced {self.type}>"

    def __str__(self) -> str:
        return self._text("str")

    def _text(self, asked: str) -> str:
        """The text of what is known; of a number that is not, which would go into keys and names, there is none."""
        known = self._readable(asked)
        if known is None and self.type.weak and current_trace() is self._cell.trace:
            raise complaints.concrete(asked)
        if known is None:
            return f"<traced {self.type}>"
        return repr(known.item() if self.type.weak else known) if asked == "repr" else str(known)

    def __format__(self, spec: str) -> str:
        known = self._readable("format")
        if known is not None:
            return format(known, spec)
        if spec:  # a format of a number needs the number, as float does
            return format(self._number("format")[()], spec)
        return self._text("format")

    def _readable(self, asked: str) -> Any:
        """The elements for a text that the function makes: those of captured arrays, and none of what is traced."""
        trace = self._cell.trace
        if not trace.alive or current_trace() is not trace:
            return None
        found = self.known() if self._cell.known is not None else contents(trace, self.read(), asked)
        return found[()] if found is not None and not found.ndim else found

    def __hash__(self) -> int:  # type: ignore[override]  # numbers are hashed, as NumPy's scalars are
        known = None if self.type.shape else self._known_number("hash")
        if known is None and self._scalar:
            raise complaints.concrete("hash")
        if known is None:
            raise DtypeError(f"hash: of an array, which has none; x.shape or id(x) can be a key{at(user_line())}")
        return hash(known[()] if isinstance(known, np.ndarray) else known)

    def __deepcopy__(self, memo: Any) -> Any:
        return self.copy()

    __copy__ = ArrayMethods.copy

    def __reduce__(self) -> Any:
        raise TraceError(f"pickle: a traced value has no elements yet; pickle concrete arrays{at(user_line())}")


def fresh(trace: Trace, value: Operand, *, scalar: bool | None = None) -> TracedArray:
    """A new variable that holds an operand; rank 0 is what NumPy would return as a scalar, unless told otherwise."""
    return TracedArray(Cell(trace, value), value.type, None, None, not value.type.shape if scalar is None else scalar)


def is_number(x: Any) -> bool:
    """Whether ``x`` is a Python number or stands for one."""
    return type(x) in (int, float, complex, bool, Dim) or (type(x) is TracedArray and x.type.weak)


def number_of(x: Any) -> Any:
    """The result of an operator on Python numbers: a Python number, which gives way in promotion. NumPy's functions
    make NumPy scalars of the same numbers, which do not."""
    if type(x) is tuple:
        return tuple(map(number_of, x))
    return number(x._cell.trace, x.read()) if type(x) is TracedArray and not x.type.weak else x


def number(trace: Trace, value: Operand) -> TracedArray:
    """A fresh variable that stands for a Python number."""
    made = fresh(trace, value)
    made.type = ArrayType(value.type.dtype, (), True)
    return made


def from_known(trace: Trace, array: AnyArray, fill: Any = None) -> TracedArray:
    """A known cell: NumPy goes on computing with it until a traced value is written into it."""
    cell = Cell(trace, None, array)
    cell.fill = fill
    cell.line = user_line()
    return TracedArray(cell, ArrayType(array.dtype, array.shape))


def captured(trace: Trace, array: Any) -> TracedArray:
    """The variable of an array from outside, one for each array: the program reads it at every call."""
    value = trace.capture(array)
    known = trace.variables.get(id(array))
    if known is None:
        cell = Cell(trace, value)
        cell.origin = trace.names.get(id(array), "a captured array")
        cell.input = value
        scalar = getattr(array, "_scalar", False)  # of a tn.Array
        known = trace.variables[id(array)] = TracedArray(cell, value.type, None, None, scalar)
    assert isinstance(known, TracedArray)
    return known


def operand(trace: Trace, x: Any, name: str) -> tuple[Operand, Any]:
    """The operand that ``x`` is to the program, and its part in promotion: a dtype, or int, float, complex if weak."""
    kind = type(x)
    if kind is TracedArray:
        if x._cell.trace is not trace:
            x.live_trace()
        value, declared = x.read(), x.type
        if value.type.dtype != declared.dtype:
            raise complaints.internal(f"{name}: a variable of {declared} reads as {value.type}")
        return value, _WEAK_KINDS[declared.dtype.kind] if declared.weak else declared.dtype
    if kind is float:
        return Literal(x, np.dtype(np.float64)), float
    if kind is int:
        return Literal(x, INT64), int
    if kind is complex:
        return Literal(x, np.dtype(np.complex128)), complex
    if kind is bool:
        return Literal(x, BOOL), BOOL
    if kind is Dim:
        x.live_trace()
        expr = trace.canonical(x.expr)
        return (Literal(expr, INT64) if isinstance(expr, int) else DimScalar(expr, INT64)), int
    array = as_traced(trace, x, name)
    return operand(trace, array, name) if isinstance(array, TracedArray) else (build.literal(x, x.dtype), x.dtype)


def as_traced(trace: Trace, x: Any, name: str) -> Any:
    """``x`` as a traced array: what is one already stays, arrays from outside are captured, lists are stacked.

    Python scalars, Dims and NumPy scalars become arrays of rank 0."""
    if type(x) is TracedArray:
        x.live_trace()
        return x
    if isinstance(x, np.ndarray) or is_tenferro_array(x):
        return captured(trace, x)
    if isinstance(x, np.generic):
        from tenferro.tracer.trace import check_dtype

        check_dtype(x.dtype, name)
        return fresh(trace, build.literal(x, x.dtype))
    if isinstance(x, list | tuple):
        from tenferro.tracer.api.creation import stack_nested

        return stack_nested(trace, x, name)
    if type(x) is int and not -(2**63) <= x < 2**63:
        return as_traced(trace, _wide(x, name), name)
    if type(x) in (bool, int, float, complex, Dim):
        value, kind = operand(trace, x, name)
        return number(trace, value)
    raise DtypeError(
        f"{name}: an argument of class {type(x).__module__}.{type(x).__qualname__}; an array or a number is "
        f"needed{at(user_line())}"
    )


def _wide(x: int, name: str) -> Any:
    """An int that no int64 holds as the NumPy scalar that ``numpy.asarray`` makes of it."""
    if not 0 <= x < 2**64:
        raise RangeError(f"{name}: {x}; an int between -2**63 and 2**64 - 1 is needed{at(user_line())}")
    return np.uint64(x)
