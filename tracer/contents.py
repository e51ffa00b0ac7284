"""Concrete values inside a trace: an operand made of captured arrays alone in, its present elements out.

Where Python asks for a number (``float``, ``if``, an index, NumPy code that does not trace), what was computed from
captured arrays is computed again with NumPy, and each array that takes part is remembered with its present elements:
the program serves only while they are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from tenferro.tracer.dims import DimExpr, Extent, Leaf, evaluate, leaf, leaves
from tenferro.tracer.errors import TraceError
from tenferro.tracer.lines import SourceLine, at, user_line
from tenferro.tracer.ops import library
from tenferro.tracer.program import DimScalar, Literal, Operand, Operation, Value
from tenferro.tracer.records import dataclass
from tenferro.tracer.trace import Trace, is_tenferro_array

AnyArray: TypeAlias = np.ndarray[Any, Any]

MAX_COMPARED_BYTES = 16 << 20  # comparing as much at each call takes 1 to 2 ms


@dataclass(frozen=True, slots=True)
class Contents:
    """What an array held when the trace asked for its elements: dtype, shape, and bytes in row-major order."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    data: bytes

    @classmethod
    def of(cls, array: Any) -> Contents:
        """The contents of an ndarray or a ``tn.Array``."""
        memory = array._data if is_tenferro_array(array) else array
        return cls(memory.dtype, memory.shape, memory.tobytes())

    def same(self, array: Any) -> bool:
        """Whether an array holds these very bits; False for what is no array."""
        memory = array._data if is_tenferro_array(array) else array
        return (
            isinstance(memory, np.ndarray)
            and memory.dtype == self.dtype
            and memory.shape == self.shape
            and memory.tobytes() == self.data
        )

    def array(self) -> AnyArray:
        """The elements as a read-only array in native byte order."""
        return np.frombuffer(self.data, self.dtype).reshape(self.shape).astype(self.dtype.newbyteorder("="), copy=False)


@dataclass(frozen=True, slots=True)
class Asked:
    """The elements of ``array`` were asked for: by what, at which line."""

    array: Any
    contents: Contents
    what: str
    line: SourceLine | None


class Evaluation:
    """The values computed so far for one trace, by value id, and the arrays that were asked for."""

    def __init__(self, trace: Trace) -> None:
        self.asked: dict[int, Asked] = {}
        self._trace = trace
        self._values: dict[int, AnyArray] = {}
        self._env: dict[Leaf, int] = {}
        self._opaque: set[int] = set()  # ids of values in which an argument takes part

    def is_possible(self, operand: Operand) -> bool:
        """Whether captured arrays, sizes and constants are all that the operand is made of."""
        return isinstance(operand, Literal | DimScalar) or self._needed(operand) is not None

    def value(self, operand: Operand, what: str) -> AnyArray | None:
        """The elements, read-only, or None where an argument takes part. TraceError where an array is too large to be
        compared at each call."""
        if not isinstance(operand, Value):
            return self._of(operand)
        needed = self._needed(operand)
        if needed is None:
            return None
        for number in sorted(needed):
            found = needed[number]
            if found is None:
                self._values[number] = self._read(number, what)
            else:
                self._run(found, what)
        return self._values[operand.id]

    def _needed(self, operand: Value) -> dict[int, Operation | None] | None:
        """What is yet to be computed: operations, and None for inputs; None as a whole where an argument is met."""
        if self._trace.spread is not None and self._trace.spread.differs(operand):
            return None
        found: dict[int, Operation | None] = {}
        waiting = [operand.id]
        while waiting:
            number = waiting.pop()
            if number in found or number in self._values:
                continue
            if number >= 0:
                operation = self._trace.producer(number)
                if operation is None or number in self._opaque or operation.op.is_ordered(operation.params):
                    self._opaque.add(operand.id)
                    return None
                found[number] = operation
                waiting += [i.id for i in operation.inputs if isinstance(i, Value)]
            else:
                found[number] = None
        return found

    def _read(self, number: int, what: str) -> AnyArray:
        for value, array in self._trace.constants:
            if value.id == number:
                return _read_only(array)
        array = next(a for v, a in self._trace.captured.values() if v.id == number)
        if self._trace.is_once:
            memory: Any = array
            return _read_only(np.asarray(memory._data if is_tenferro_array(memory) else memory))
        known = self.asked.get(id(array))
        if known is None:
            size = array.size * np.dtype(array.dtype).itemsize
            name = self._trace.names.get(id(array), "a captured array")
            if size > MAX_COMPARED_BYTES:
                raise TraceError(
                    f"{what}: of {name}, whose {size} bytes would be compared at each call; at most "
                    f"{MAX_COMPARED_BYTES} are; pass what is asked for as an argument{at(user_line())}"
                )
            known = self.asked[id(array)] = Asked(array, Contents.of(array), what, user_line())
        return known.contents.array()

    def _run(self, operation: Operation, what: str) -> None:
        arrays = [self._values[i.id] if isinstance(i, Value) else self._of(i) for i in operation.inputs]
        # An extent that this very result determines is no parameter of the NumPy call.
        params = {
            k: None if isinstance(v, DimExpr) and _is_own(operation, v) else self._evaluated(v, what)
            for k, v in operation.params.items()
        }
        with np.errstate(all="ignore"):
            results = library.computed(operation.op, arrays, params, operation.line)
        outputs = operation.outputs
        for output, result in zip(outputs, results if isinstance(results, tuple) else (results,), strict=True):
            self._values[output.id] = _read_only(np.asarray(result, output.type.dtype))
        for number, axis in operation.op.measures(operation.params):
            symbol = _symbol(outputs[number].type.shape[axis])
            if symbol is not None:
                self._env[symbol] = self._values[outputs[number].id].shape[axis]

    def _of(self, operand: Operand) -> AnyArray:
        if isinstance(operand, Literal):
            return np.asarray(operand.value, operand.dtype)
        assert isinstance(operand, DimScalar)
        return np.asarray(self._trace.concrete(operand.expr, "a number made of sizes"), operand.dtype)

    def _evaluated(self, param: Any, what: str) -> Any:
        if isinstance(param, tuple):
            return tuple(self._evaluated(p, what) for p in param)
        if not isinstance(param, DimExpr):
            return param
        size = self.size(param, what)
        return self._trace.concrete(param, what) if size is None else size

    def size(self, extent: Extent, what: str) -> int | None:
        """A size in which run-time extents take part, where they come from captured arrays alone; else None. Sizes of
        arguments in it are pinned; those of captured arrays need no guard, since their contents have one."""
        if isinstance(extent, int):
            return extent
        env: dict[Leaf, int] = {}
        for symbol in leaves(extent):
            found = self._leaf(symbol, what)
            if found is None:
                return None
            env[symbol] = found
        return evaluate(extent, env)

    def forget(self, stays: Callable[[Extent], bool]) -> None:
        """Forget run-time extents of operations that the trace has no longer."""
        self._env = {s: n for s, n in self._env.items() if stays(leaf(s.kind, s.index, s.axis))}

    def _leaf(self, symbol: Leaf, what: str) -> int | None:
        trace = self._trace
        if symbol.kind == "runtime":
            if symbol.index >= len(trace.operations):  # of a function that was taken out
                return None
            if symbol not in self._env and self.value(trace.operations[symbol.index].outputs[0], what) is None:
                return None
            return self._env.get(symbol)
        if symbol.kind == "extent" and symbol.index >= len(trace.inputs):
            declared = trace.late[symbol.index - len(trace.inputs)]
            array = next((a for v, a in trace.captured.values() if v == declared.value), None)
            if array is not None and id(array) in self.asked:
                return trace.env[symbol]
        return trace.concrete(leaf(symbol.kind, symbol.index, symbol.axis), what)


def _read_only(array: AnyArray) -> AnyArray:
    view = array.view()
    view.flags.writeable = False
    return view


def _is_own(operation: Operation, extent: Extent) -> bool:
    """Whether the extent is a run-time extent of the operation's own result."""
    measured = operation.op.measures(operation.params)
    return any(operation.outputs[number].type.shape[axis] == extent for number, axis in measured)


def _symbol(extent: Extent) -> Leaf | None:
    """The leaf that the extent is, or None."""
    if isinstance(extent, int) or len(extent.terms) != 1:
        return None
    ((monomial, coefficient),) = extent.terms
    return monomial[0].leaf if coefficient == 1 and len(monomial) == 1 else None


def evaluation(trace: Trace) -> Evaluation:
    """The trace's own evaluation, made at the first question."""
    if trace.evaluation is None:
        trace.evaluation = Evaluation(trace)
    found = trace.evaluation
    assert isinstance(found, Evaluation)
    return found


def contents(trace: Trace, operand: Operand, what: str) -> AnyArray | None:
    """The present elements of an operand that is made of captured arrays; None where an argument takes part, and where
    no captured array does. ``what`` asks, for the texts of errors and guards."""
    return evaluation(trace).value(operand, what) if trace.captured else None


def outside_element(trace: Trace, value: Value, key: Any) -> Any:
    """In a body of a trace of one call, an outside array's element at a known place: a NumPy scalar, which no turn and
    no lane reads again. None for anything else."""
    places = key if type(key) is tuple else (key,)
    if trace.scope is None or any(type(k) is not int for k in places):
        return None
    array = next(a for v, a in trace.captured.values() if v == value)
    if not isinstance(array, np.ndarray) or len(places) != array.ndim:
        return None
    return array[places] if all(-n <= k < n for k, n in zip(places, array.shape, strict=True)) else None


def runtime_size(trace: Trace, extent: Extent, what: str) -> int | None:
    """The present value of a run-time extent that depends on captured arrays alone, or None."""
    return evaluation(trace).size(extent, what) if trace.captured else None
