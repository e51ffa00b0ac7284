"""Tracing one call: a function and its leaves' types in, a SemanticProgram and how to rebuild the result out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal as OneOf

import numpy as np

from tenferro.tracer import build, switches
from tenferro.tracer.api import registry
from tenferro.tracer.cells import Cell
from tenferro.tracer.dim import Dim
from tenferro.tracer.dims import DimExpr, is_runtime
from tenferro.tracer.errors import REFUSALS, TenferroError, TraceError
from tenferro.tracer.exact import told_apart
from tenferro.tracer.finish import Renaming, finish, late_inputs
from tenferro.tracer.freezing import is_refusal, refused, thaw
from tenferro.tracer.lines import SourceLine, at, is_users
from tenferro.tracer.program import DimScalar, Operand, Value
from tenferro.tracer.records import dataclass
from tenferro.tracer.result import OutLeaf, TraceResult
from tenferro.tracer.trace import CURRENT, Trace, check_dtype, current_trace, is_tenferro_array
from tenferro.tracer.traced import TracedArray, captured
from tenferro.tracer.tree import TreeDef
from tenferro.tracer.wrap import wrapped

API_FAMILIES = registry.FAMILIES  # importing it fills the dict in which traced values look their operators up


@dataclass(frozen=True, slots=True)
class LeafSpec:
    """What a dynamic leaf of the arguments looks like in the call being traced.

    ``array``: ``dtype`` and ``shape``; ``int``: ``hint``; ``scalar``: a Python float or complex (``weak``) or a NumPy
    scalar, ``dtype``. ``name`` says where it is in the arguments, for error texts."""

    kind: OneOf["array", "int", "scalar"]
    name: str
    dtype: np.dtype[Any] | None = None
    shape: tuple[int, ...] = ()
    hint: int = 0
    weak: bool = False
    donated: bool = False
    tenferro: bool = False


def _argument(trace: Trace, spec: LeafSpec) -> Any:
    """The traced leaf that stands for an argument."""
    if spec.kind == "int":
        return Dim(trace, trace.add_int(spec.hint, spec.name), spec.hint, None)
    assert spec.dtype is not None
    dtype = check_dtype(spec.dtype, spec.name)
    value = trace.add_input(dtype, spec.shape, spec.name, weak=spec.weak)
    cell = Cell(trace, value)
    cell.input = value
    cell.origin = f"argument {spec.name}"
    cell.donated = spec.donated
    return TracedArray(cell, value.type, None, None, spec.kind == "scalar")


def trace_program(
    function: Callable[..., Any],
    leaves: Sequence[LeafSpec],
    rebuild: Callable[[list[Any]], Any],
    flatten: Callable[[Any], tuple[list[Any], TreeDef]],
    name: str,
) -> TraceResult:
    """Run ``rebuild(traced leaves)``, which calls the user's ``function``, and record what it does.

    ``flatten`` opens the result as a pytree. Errors of the user's function pass through; the trace is over in any case.
    """
    trace = Trace(name)
    arguments = [_argument(trace, spec) for spec in leaves]
    token = CURRENT.set(trace)
    around, refusals = REFUSALS.get(), list[TenferroError]()
    noting = REFUSALS.set(refusals)
    try:
        with switches.paused(), wrapped():
            result = _called(rebuild, arguments, refusals)
        _check_caught(refusals)
        found, treedef = flatten(result)
        return _Outputs(trace, arguments, leaves).collect(found, treedef)
    finally:
        trace.alive = False
        thaw(trace.frozen)
        trace.frozen.clear()
        CURRENT.reset(token)
        REFUSALS.reset(noting)
        if around is not None:  # the function that called this one may catch them
            around += refusals


def _called(rebuild: Callable[[list[Any]], Any], arguments: list[Any], refusals: Sequence[TenferroError]) -> Any:
    """The function's result. NumPy hides errors that an element raises while it is stored behind one of its own, and
    Python a refusal behind a TypeError that knows neither cure nor line (``"%d" % x``)."""
    try:
        return rebuild(arguments)
    except ValueError as error:
        if isinstance(error.__cause__, TenferroError):
            raise error.__cause__ from None
        trace = current_trace()
        if trace is not None and trace.frozen and is_refusal(error):
            raise refused(trace.name, _raised_at(error)) from error
        raise
    except TypeError as error:
        if type(error) is TypeError and refusals and str(refusals[-1]).endswith(at(_raised_at(error))):
            raise refusals[-1] from error
        raise


def _raised_at(error: Exception) -> SourceLine | None:
    """The last line of the user's that the error passed."""
    found, step = None, error.__traceback__
    while step is not None:
        if is_users(step.tb_frame):
            found = SourceLine(step.tb_frame.f_code.co_filename, step.tb_lineno)
        step = step.tb_next
    return found


def _check_caught(refusals: Sequence[TenferroError]) -> None:
    """Raise the first refusal that reached the user's own code, which caught it and went on to return: what it did then
    is not what it does with NumPy. What NumPy and this package caught among themselves passed no user frame."""
    for error in refusals:
        step = error.__traceback__
        while step is not None:
            if is_users(step.tb_frame):
                raise type(error)(
                    f"{error}; the function caught this error and went on, though NumPy raises none there; let the "
                    "error pass"
                ) from error
            step = step.tb_next


class _Outputs:
    """Collects the program's outputs and which memory each of them lies in."""

    def __init__(self, trace: Trace, arguments: list[Any], specs: Sequence[LeafSpec]) -> None:
        self._trace = trace
        self._arguments = arguments
        self._specs = specs
        self._operands: list[Operand] = []
        self._aliases: list[int] = []
        self._groups: dict[int, int] = {}
        self._owner: dict[Operand, int] = {}

    def collect(self, found: Sequence[Any], treedef: TreeDef) -> TraceResult:
        out_leaves = tuple(self._leaf(x) for x in found)
        structure = _numbered(treedef)
        writes = []
        for index, x in enumerate(self._arguments):
            if type(x) is TracedArray and x._cell.donated and x._cell.version:
                writes.append((index, self._add(x)))
        trace = self._trace
        first = len(trace.inputs)
        sizes = [trace.canonical(x) for kind, x in out_leaves if kind == "size"]
        late = late_inputs(trace, self._operands, sizes)
        renaming = Renaming(trace, late)
        program = finish(trace, self._operands, self._aliases, renaming)
        held = tuple((first + late[-1 - v.id], array) for v, array in trace.captured.values() if -1 - v.id in late)
        return TraceResult(
            program,
            held,
            tuple((first + late[-1 - v.id], array) for v, array in trace.constants if -1 - v.id in late),
            structure,
            tuple((kind, renaming.extent(x) if kind == "size" else x) for kind, x in out_leaves),  # type: ignore[misc]
            tuple(writes),
            any(s.tenferro for s in self._specs) or any(is_tenferro_array(a) for _, a in held),
        )

    def _leaf(self, x: Any) -> OutLeaf:
        kind = type(x)
        if kind is TracedArray:
            x.live_trace()
            return ("number" if x.type.weak else "scalar" if x._scalar else "array", self._add(x))
        if kind is Dim:
            x.live_trace()
            expr = self._trace.canonical(x.expr)
            if isinstance(expr, int):
                return ("static", expr)
            return ("number", self._add_size(expr)) if is_runtime(expr) else ("size", expr)
        if isinstance(x, np.ndarray) or is_tenferro_array(x):
            return ("array", self._add(captured(self._trace, x)))
        if isinstance(x, int | float | complex | str | bytes | np.generic | np.dtype | type) or _is_static(x):
            return ("static", x)
        raise TraceError(
            f"{self._trace.name}: result of class {type(x).__module__}.{type(x).__qualname__}; arrays, numbers and "
            f"pytrees of them can be returned"
        )

    def _add(self, x: TracedArray) -> int:
        cell = x._cell
        if cell.input is not None:
            number = cell.input.id
            # Late inputs stand behind the arguments; the memory of input i is written −1 − i.
            group = -1 - (number if number >= 0 else len(self._trace.inputs) - 1 - number)
        else:
            group = self._groups.setdefault(id(cell), len(self._groups))
            self._own(cell, group)
        value = x.read()
        self._trace.check_whole([value])
        self._operands.append(value)
        self._aliases.append(group)
        return len(self._operands) - 1

    def _add_size(self, size: DimExpr) -> int:
        """A size that only the run knows, as an output: what measures it belongs to the program then."""
        self._operands.append(DimScalar(size, np.dtype(np.int64)))
        # No other output shares its group, and no variable has one that is known by the number of an output.
        self._aliases.append(self._groups.setdefault(-len(self._operands), len(self._groups)))
        return len(self._operands) - 1

    def _own(self, cell: Cell, group: int) -> None:
        """A variable that is returned must not hold the very value of an input, a constant or another variable."""
        value = cell.read()
        if not isinstance(value, Value):
            return
        is_input = value.id < len(self._trace.inputs)
        if is_input or self._owner.setdefault(value, group) != group:
            copy = build.copied(self._trace, value)
            cell.known = None
            cell.set(copy)
            self._owner[copy] = group


def _numbered(structure: TreeDef) -> TreeDef:
    """The structure with the sizes in it, such as keys of a dict, as the numbers that they are in this call."""
    metadata = _without_sizes(structure.metadata)
    return TreeDef(structure.node, metadata, tuple([_numbered(c) for c in structure.children]), told_apart(metadata))


def _without_sizes(metadata: Any) -> Any:
    if type(metadata) is Dim:
        return int(metadata)
    if type(metadata) is tuple or type(metadata) is list:
        return type(metadata)([_without_sizes(m) for m in metadata])
    return metadata


def _is_static(x: Any) -> bool:
    from enum import Enum

    return isinstance(x, Enum) or x is Ellipsis or callable(x)
