"""The running trace: operations and assumptions in, the parts of a SemanticProgram out.

A ``Trace`` is a builder: it types and records each operation with the user's line, answers comparisons of sizes from
the values of the call being traced (recording a guard), and gives an input to every array that the function meets.
``tenferro.tracer.finish`` turns it into a frozen program.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Hashable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal as OneOf

import numpy as np

from tenferro.tracer.bounds import Bounds, presentable, seniority, single_leaf
from tenferro.tracer.complaints import COUNTS, uncompared
from tenferro.tracer.dims import DimExpr, Extent, Leaf, evaluate, leaf, leaves, mul, sub, substitute
from tenferro.tracer.errors import (
    DerivativeError,
    DtypeError,
    LeakError,
    TenferroError,
    TraceError,
    UnrolledLoopWarning,
)
from tenferro.tracer.freezing import freeze
from tenferro.tracer.lines import SourceLine, at, user_line
from tenferro.tracer.numbering import ValueNumbers
from tenferro.tracer.op import Op
from tenferro.tracer.program import ArrayType, Operand, Operation, Params, ProgramInput, ShapeGuard, Value
from tenferro.tracer.tape import Tangent, Tape

if TYPE_CHECKING:
    from tenferro.tracer.spread import Spread
    from tenferro.tracer.transform.batch import Lanes
    from tenferro.tracer.transform.recording import Scope

Relation = OneOf["==", "<", "<="]
NO_PARAMS = Params()
UNROLLED_LIMIT = 1000
KINDS = "biufc"

_SYMBOL = re.compile(r"\b([dnr])(\d+)(?:_(\d+))?\b")  # the text of a leaf, as in tenferro.tracer.dims

CURRENT: ContextVar[Trace | None] = ContextVar("tenferro_trace", default=None)


def current_trace() -> Trace | None:
    """The trace that runs in this context, or None."""
    return CURRENT.get()


def running_trace(name: str) -> Trace:
    """The trace that runs in this context; a TraceError names the function that needs one."""
    trace = CURRENT.get()
    if trace is None:
        raise TraceError(f"{name}: no trace is running; call it inside a jitted function{at(user_line())}")
    return trace


def is_tenferro_array(x: object) -> bool:
    """Whether ``x`` is a ``tn.Array``: its class says so itself, since this folder imports nothing above it."""
    return bool(getattr(type(x), "_is_tenferro_array", False))


def is_supported(dtype: np.dtype[Any]) -> bool:
    """Whether engines hold arrays of the dtype, apart from its byte order."""
    return dtype.kind in KINDS and dtype.itemsize <= (16 if dtype.kind == "c" else 8)


def check_dtype(dtype: np.dtype[Any], name: str) -> np.dtype[Any]:
    """The dtype in native byte order; a DtypeError refuses what no engine holds (strings, objects, longdouble)."""
    if not is_supported(dtype):
        raise DtypeError(
            f"{name}: dtype {dtype}; one of bool, int8 to int64, uint8 to uint64, float16 to float64, complex64, "
            f"complex128 is needed{at(user_line())}"
        )
    return own_dtype(dtype)


def own_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The one descriptor of these numbers: in native byte order, and the same for C's types of one width (``long`` and
    ``long long``), which NumPy takes for equal though it names them apart."""
    return np.dtype(f"{dtype.kind}{dtype.itemsize}")


def check_ndarray(x: np.ndarray[Any, Any], name: str) -> None:
    """Refuse subclasses whose operators mean something else; ``memmap`` is plain memory."""
    if type(x) is not np.ndarray and type(x) is not np.memmap:
        kind = f"{type(x).__module__}.{type(x).__qualname__}"
        raise DtypeError(
            f"{name}: an array of class {kind}; a plain numpy.ndarray is needed, "
            f"numpy.asarray(x) makes one{at(user_line())}"
        )
    if x.dtype == object and any(hasattr(type(i), "live_trace") for i in x.flat):
        raise DtypeError(
            f"{name}: an array of objects, which NumPy made of a list of traced numbers; numpy.array([a, b]) makes one "
            f"of numbers, and functions of tenferro.numpy take lists{at(user_line())}"
        )
    check_dtype(x.dtype, name)


class Trace:
    """What one call of a function does, being written down."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.inputs: list[ProgramInput] = []
        self.late: list[ProgramInput] = []
        self.operations: list[Operation] = []
        self.guards: list[ShapeGuard] = []
        self.env: dict[Leaf, int] = {}
        self.captured: dict[int, tuple[Value, Any]] = {}
        self.constants: list[tuple[Value, np.ndarray[Any, Any]]] = []
        self._runtime_extents: dict[Hashable, DimExpr] = {}
        self._promises: list[tuple[Extent, Extent]] = []
        self.variables: dict[int, object] = {}  # id of a captured array -> its TracedArray
        self.names: dict[int, str] = {}  # id of an array -> the name under which the function reads it
        self.evaluation: object = None  # tenferro.tracer.contents.Evaluation, once a concrete value was asked for
        self.unified: dict[Leaf, Extent] = {}
        self.line: SourceLine | None = None
        self.place = ""  # the engine that operations are put on now
        self.spread: Spread | None = None  # while operations are recorded once for each engine of a mesh
        self.partial: set[int] = set()  # ids of values that were one engine's alone, of spreads that are over
        self._makers: list[int] = []  # of each value after the inputs, the number of its operation
        self.writing: SourceLine | None = None  # the line of operations, where it is not the user's present one
        self.tape: Tape | None = None  # takes what is linear in a tape's inputs, while a function is differentiated
        self.scope: Scope | None = None  # of what is recorded to be taken out again
        self.axes: list[Lanes] = []  # of the functions under vmap that run now
        self.mapping: Lanes | None = None  # what records operations for all lanes now
        self.varying: set[int] = set()  # ids of the arguments that derivatives are being taken of
        self.depth = 0  # how many derivatives are being taken, one inside the other
        self.is_once = False  # whether it serves one call only, whose captured arrays are known
        self.frozen: list[np.ndarray[Any, Any]] = []  # captured arrays that nobody can write until it has ended
        self.is_cut = False  # whether operations were taken out again: ids are not dense then
        self._bounds = Bounds()
        self._numbers = ValueNumbers()
        self._answers: dict[tuple[Relation, Extent, Extent], bool] = {}
        self._line_counts: dict[int, int] = {}
        self._next = 0

    # -- inputs --------------------------------------------------------------------------------------------------

    def add_input(self, dtype: np.dtype[Any], shape: tuple[int, ...], name: str, *, weak: bool = False) -> Value:
        """An argument of the traced function. Its extents become leaves with the call's sizes as hints."""
        index = len(self.inputs)
        value = Value(index, ArrayType(dtype, self._extents(index, shape), weak))
        self.inputs.append(ProgramInput(value, "argument", name))
        self._next = len(self.inputs)
        return value

    def add_int(self, hint: int, name: str) -> DimExpr:
        """An int argument: an input of rank 0 that is also a leaf."""
        index = len(self.inputs)
        value = Value(index, ArrayType(np.dtype(np.int64), (), True))
        self.inputs.append(ProgramInput(value, "int", name))
        self._next = len(self.inputs)
        self.env[Leaf("int", index)] = hint
        return leaf("int", index)

    def _extents(self, index: int, shape: tuple[int, ...]) -> tuple[Extent, ...]:
        for axis, n in enumerate(shape):
            self.env[Leaf("extent", index, axis)] = n
        return tuple(leaf("extent", index, axis) for axis in range(len(shape)))

    def capture(self, array: Any) -> Value:
        """The input through which the program reads an array from outside, the same one each time it is met."""
        known = self.captured.get(id(array))
        if known is not None:
            return known[0]
        name = f"captured {len(self.captured)}"
        if isinstance(array, np.ndarray):
            check_ndarray(array, "captured array")
        index = len(self.inputs) + len(self.late)
        dtype = check_dtype(np.dtype(array.dtype), "captured array")
        shape = tuple(int(n) for n in array.shape)
        value = Value(-1 - len(self.late), ArrayType(dtype, self._extents(index, shape)))
        self.late.append(ProgramInput(value, "captured", name))
        self.captured[id(array)] = (value, array)
        self.frozen += freeze(array) if self.is_once else ()
        return value

    def constant(self, array: np.ndarray[Any, Any]) -> Value:
        """An input bound once, to an array that the trace itself has made; its sizes are plain numbers."""
        value = Value(-1 - len(self.late), ArrayType(array.dtype, array.shape))
        self.late.append(ProgramInput(value, "constant", f"constant {len(self.constants)}"))
        self.constants.append((value, array))
        return value

    # -- operations ----------------------------------------------------------------------------------------------

    def emit(self, op: Op, inputs: Sequence[Operand], **params: Hashable) -> tuple[Value, ...]:
        """Record ``op[params](inputs)`` and return its results, typed by the row's own rule."""
        return self._record(op, tuple(inputs), Params(**params) if params else NO_PARAMS)

    def emit1(self, op: Op, *inputs: Operand, **params: Hashable) -> Value:
        """``emit`` for the ops of one result, which is all but a few."""
        return self._record(op, inputs, Params(**params) if params else NO_PARAMS)[0]

    def _record(self, op: Op, inputs: tuple[Operand, ...], params: Params) -> tuple[Value, ...]:
        if not self.alive:
            raise LeakError(f"{op.name}: the trace of {self.name} has ended{at(user_line())}")
        line = self.line = self.writing or user_line(4)  # behind this one and emit
        try:
            types = op.infer([i.type for i in inputs], params)
        except TenferroError as error:
            raise type(error)(f"{error}{at(line)}") from None
        for i in inputs:
            if type(i) is Tangent:
                return self._taped(op, inputs, params, types)
        if line is not None and not self.writing:
            count = self._line_counts[id(line)] = self._line_counts.get(id(line), 0) + 1
            if count == UNROLLED_LIMIT + 1:
                self._warn_of_loop(line)
        if self.spread is not None:
            return self.spread.record(op, inputs, params, types)
        if self.partial:
            self.check_whole(inputs)
        return self.append(op, inputs, params, types, self.place)

    def _taped(
        self, op: Op, inputs: tuple[Operand, ...], params: Params, types: Sequence[ArrayType]
    ) -> tuple[Value, ...]:  # fmt: skip
        if self.tape is None:  # what is being transposed multiplies one tangent by another
            raise DerivativeError(
                f"{op.name}: of two values that vary, in which it is not linear; a function that is linear in its "
                f"arguments is needed{at(self.line)}"
            )
        return self.tape.append(op, inputs, params, types, self.line, self.place)

    def append(
        self, op: Op, inputs: tuple[Operand, ...], params: Params, types: Sequence[ArrayType], place: str
    ) -> tuple[Value, ...]:
        """Record an operation whose results have been typed, on an engine, with the line of the last ``emit``."""
        first, number = self._next, len(self.operations)
        self._next = first + len(types)
        if len(types) == 1:
            outputs: tuple[Value, ...] = (Value(first, types[0]),)
            self._makers.append(number)
        else:
            outputs = tuple(map(Value, range(first, self._next), types))
            self._makers += [number] * len(types)
        self.operations.append(Operation(op, inputs, params, outputs, self.line, place))
        return outputs

    def number(self, operation: Operation) -> int:
        """Where a recorded operation stands."""
        place = self._makers[operation.outputs[0].id - len(self.inputs)]
        assert self.operations[place] is operation
        return place

    def extend(
        self, operation: Operation, inputs: Sequence[Operand], params: Mapping[str, Hashable]
    ) -> tuple[Value, ...]:
        """Give a recorded operation further results, by other parameters and operands; what it gave before it gives
        still, under the same names. The further results."""
        place = self.number(operation)
        found = Params(**params)
        types = operation.op.infer([i.type for i in inputs], found)
        more = tuple(Value(self._next + k, t) for k, t in enumerate(types[len(operation.outputs) :]))
        self._next += len(more)
        self._makers += [place] * len(more)
        self.is_cut = True
        outputs = (*operation.outputs, *more)
        self.operations[place] = replace(operation, inputs=tuple(inputs), params=found, outputs=outputs)
        return more

    # -- recordings ----------------------------------------------------------------------------------------------

    def placeholder(self, type_: ArrayType) -> Value:
        """A value that no operation makes, for a function that is recorded to be taken out again (``taken``)."""
        value = Value(self._next, type_)
        self._next += 1
        self._makers.append(-1)
        self.is_cut = True  # a function that records nothing leaves a gap all the same
        return value

    def taken(self, start: int) -> list[Operation]:
        """The operations from number ``start`` on, taken out of the trace; their results are no values of it any
        more."""
        found = self.operations[start:]
        if found:
            self.is_cut = True
            first = found[0].outputs[0].id - len(self.inputs)
            self._makers[first:] = [-1] * (len(self._makers) - first)
            del self.operations[start:]
            self._numbers = ValueNumbers()
            if any(o.op.measures(o.params) for o in found):
                self._forget_sizes(start)
        return found

    def _forget_sizes(self, start: int) -> None:
        """Forget the sizes that operations from number ``start`` on found: others get their numbers."""

        def stays(extent: Extent) -> bool:
            return all(s.kind != "runtime" or s.index < start for s in leaves(extent))

        self._runtime_extents = {key: n for key, n in self._runtime_extents.items() if stays(n)}
        self._answers = {key: a for key, a in self._answers.items() if stays(key[1]) and stays(key[2])}
        self._promises = [pair for pair in self._promises if all(map(stays, pair))]
        self._bounds.forget(stays)
        if self.evaluation is not None:
            from tenferro.tracer.contents import evaluation

            evaluation(self).forget(stays)

    def check_whole(self, operands: Sequence[Operand]) -> None:
        """Refuse what a function under ``shard_map`` stored instead of returning it: it differs between engines."""
        for x in operands:
            if isinstance(x, Value) and x.id in self.partial:
                raise LeakError(
                    f"traced value {x.type}: one engine's part, used outside the function under shard_map that made "
                    f"it; return it from there{at(user_line())}"
                )

    def producer(self, number: int) -> Operation | None:
        """The operation that made the value of this id; None for an input."""
        index = number - len(self.inputs)
        if number < 0 or index < 0 or self._makers[index] < 0:
            return None
        return self.operations[self._makers[index]]

    def _warn_of_loop(self, line: SourceLine) -> None:
        warnings.warn_explicit(
            f"{self.name}: more than {UNROLLED_LIMIT} operations traced from one line; a Python loop is unrolled; "
            f"keep the loop outside and jit its body, write it as tenferro.lax.scan or fori_loop, or work on whole "
            f"arrays (at {line})",
            UnrolledLoopWarning, line.file, line.line,
        )  # fmt: skip

    def runtime_extent(self, mask: Operand, *how: Hashable) -> DimExpr:
        """The number of elements under a mask: axis 0 of the operation that is recorded next, or of the one that
        selected by the same mask before. ``how`` else an operand tells a size of its own."""
        masks = (mask,) if self.spread is None else self.spread.operands(mask)
        key = (*[self._numbers.key(self.operations, m) for m in masks], *how)
        known = self._runtime_extents.get(key)
        if known is None:
            known = self._runtime_extents[key] = leaf("runtime", len(self.operations), 0)
        return known

    # -- sizes, as users know them -----------------------------------------------------------------------------------

    def describe(self, extent: Extent) -> str:
        """The size in the function's own names: ``n``, ``x.shape[0]``, with its value where this call has one; the
        value alone where it is the only call."""
        value = self.hint(extent)
        if isinstance(extent, int) or (self.is_once and value is not None):
            return str(value)
        text = _SYMBOL.sub(self._symbol_name, str(extent))
        return text if value is None else f"{text} = {value}"

    def _symbol_name(self, found: re.Match[str]) -> str:
        kind, index, axis = found.groups()
        if kind == "r":
            measured = [o.op.name for o in self.operations[int(index) :][:1]]
            return COUNTS if measured == ["bincount"] else "(number of elements selected)"
        declared = self.inputs + self.late
        name = declared[int(index)].name
        return name if kind == "n" else f"{name}.shape[{axis}]"

    # -- sizes ---------------------------------------------------------------------------------------------------

    def canonical(self, extent: Extent) -> Extent:
        """The expression in terms of the leaves that the guards so far leave distinct."""
        if isinstance(extent, int) or not self.unified:
            return extent
        return substitute(extent, self._canonical_leaf)

    def _canonical_leaf(self, symbol: Leaf) -> Extent:
        replaced = self.unified.get(symbol)
        if replaced is None:
            return leaf(symbol.kind, symbol.index, symbol.axis)
        return self.canonical(replaced)

    def hint(self, extent: Extent) -> int | None:
        """The value in the call being traced; None where a run-time extent takes part."""
        if isinstance(extent, int):
            return extent
        try:
            return evaluate(extent, self.env)
        except KeyError:
            return None

    def guard(self, relation: Relation, lhs: Extent, rhs: Extent) -> bool:
        """Whether ``lhs relation rhs``, from what is known, else from the hints: then the answer becomes a guard."""
        if lhs is rhs:
            return relation != "<"
        if isinstance(lhs, int) and isinstance(rhs, int):
            return lhs == rhs if relation == "==" else (lhs < rhs if relation == "<" else lhs <= rhs)
        key = (relation, lhs, rhs)
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = self._decide(relation, self.canonical(lhs), self.canonical(rhs))
        return answer

    def proves(self, relation: Relation, lhs: Extent, rhs: Extent) -> bool | None:
        """The answer that the guards so far imply, or None; records nothing."""
        return self._bounds.proves(relation, sub(self.canonical(rhs), self.canonical(lhs)))

    def _decide(self, relation: Relation, lhs: Extent, rhs: Extent) -> bool:
        difference = sub(rhs, lhs)
        proved = self._bounds.proves(relation, difference)
        if proved is not None:
            return proved
        if relation == "<=" and any((lhs, rhs) == tuple(map(self.canonical, pair)) for pair in self._promises):
            return True
        value = self.hint(difference)
        if value is None:
            what = f"comparison {self.describe(lhs)} {relation} {self.describe(rhs)}"
            value = self._measured(difference, what)
            if value is not None:  # the captured arrays that it depends on are guarded themselves
                return value == 0 if relation == "==" else (value > 0 if relation == "<" else value >= 0)
            raise TraceError(f"{what}: a size known only when the program runs; {uncompared(what)}{at(user_line())}")
        holds = value == 0 if relation == "==" else (value > 0 if relation == "<" else value >= 0)
        if not holds and relation != "==":
            # Not a < b is b <= a: inequalities are kept in the form that holds.
            opposite: Relation = "<=" if relation == "<" else "<"
            self._assume(opposite, mul(difference, -1), True)
        else:
            self._assume(relation, difference, holds)
        return holds

    def _assume(self, relation: Relation, difference: Extent, holds: bool) -> None:
        """Record ``(0 relation difference) == holds`` and what follows from it."""
        left, right = presentable(relation, difference)
        self.guards.append(ShapeGuard(relation, left, right, holds, user_line()))
        self._learn(relation, difference, holds)

    def promised(self, low: Extent, high: Extent) -> None:
        """``low <= high``, which an operation sees to: no guard is needed."""
        self._learn("<=", sub(high, low), True)
        self._promises.append((low, high))

    def _learn(self, relation: Relation, difference: Extent, holds: bool) -> None:
        self._bounds.learn(relation, difference, holds)
        if relation == "==" and holds:
            self._unify(difference)

    def _unify(self, difference: Extent) -> None:
        """``difference == 0`` where it is a leaf and a constant, or two leaves: one of them is replaced everywhere."""
        single = single_leaf(difference)
        if single is not None:
            symbol, coefficient, constant = single
            self.unified[symbol] = -constant // coefficient
            self._answers.clear()
            return
        if isinstance(difference, int):
            return
        terms = dict(difference.terms)
        symbols = [m[0].leaf for m in terms if len(m) == 1 and m[0].leaf is not None]
        if len(terms) != 2 or len(symbols) != 2 or sorted(terms.values()) != [-1, 1]:
            return
        first, second = sorted((s for s in symbols if s is not None), key=seniority)
        low = [b for b in (self._bounds.leaf(first)[0], self._bounds.leaf(second)[0]) if b is not None]
        if low:
            self._bounds.learn_at_least(leaf(first.kind, first.index, first.axis), max(low))
        self.unified[second] = leaf(first.kind, first.index, first.axis)
        self._answers.clear()

    def _measured(self, extent: Extent, what: str) -> int | None:
        """A run-time extent's present value, where it depends on captured arrays alone."""
        from tenferro.tracer.contents import runtime_size

        return runtime_size(self, extent, what)

    def concrete(self, extent: Extent, what: str) -> int:
        """The number that the size has in this call; the program then serves only this value of it."""
        if isinstance(extent, int):
            return extent
        value = self.hint(extent)
        if value is None:
            value = self._measured(extent, what)
            if value is not None:
                return value
            cure = ", or x.shape[0], which is traced," if what == "len" else ""
            raise TraceError(
                f"{what}: a size known only when the program runs; a size known before{cure} is needed{at(user_line())}"
            )
        known = len(self.guards)
        self.guard("==", extent, value)
        for k in range(known, len(self.guards)):
            self.guards[k] = replace(self.guards[k], asked=what)
        return value
