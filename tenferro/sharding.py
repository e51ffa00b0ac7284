"""``shard_map``: a function of shards and a mesh in, a function of whole arrays that runs it on every engine out.

Inside a trace the function is called once, on values that stand for the shards of all engines, and every operation is
recorded once for each engine (``tenferro.tracer.spread``). Outside, the whole is jitted.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tenferro.jit import BoundMethod, JitFunction
from tenferro.mesh import Mesh, PartitionSpec
from tenferro.tracer import build
from tenferro.tracer.cells import Cell
from tenferro.tracer.dim import Dim
from tenferro.tracer.dims import mod
from tenferro.tracer.errors import ShapeError, TraceError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.program import ArrayType, Operand
from tenferro.tracer.records import dataclass
from tenferro.tracer.signature import Binder, function_name
from tenferro.tracer.spread import Spread
from tenferro.tracer.trace import Trace, is_tenferro_array, running_trace
from tenferro.tracer.traced import TracedArray, as_traced, captured, operand
from tenferro.tracer.tree import leaves, opened, paired, paths, structure, unflatten

WHOLE = PartitionSpec()


def shard_map(
    f: Callable[..., Any], mesh: Mesh, in_specs: Any, out_specs: Any, *, check_vma: bool = True
) -> JitFunction:
    """A function of whole arrays that runs ``f`` on the shards, one engine of the mesh each.

    in_specs: a ``tn.P`` for each argument (one for all, or a tuple), or pytrees of them; out_specs: for the results.
    An argument is cut along the axes of its spec, whose sizes must be multiples of the mesh's; results are joined along
    theirs. What a spec does not name is the same on every engine: an argument is handed to each, of a result the first
    engine's is taken. That results are the same there is checked as far as it can be known: collectives make them so,
    arguments cut along an axis differ along it; ``check_vma=False`` turns the check off.

    Inside ``f``, ``tn.psum`` and its like are where engines meet; ``tn.axis_index`` tells them apart. ``f`` is traced
    once for all engines. The result is a jitted function, and may be called in another.

    TypeError, ShapeError for specs that fit neither the mesh nor the arguments; ShapeError for sizes that are no
    multiples."""
    if not isinstance(mesh, Mesh):
        raise TypeError(f"shard_map: mesh is of class {type(mesh).__name__}; a tn.Mesh is needed{at(user_line())}")
    _check_specs("in_specs", in_specs, mesh)
    _check_specs("out_specs", out_specs, mesh)
    if isinstance(f, BoundMethod):
        f = f.__func__.__wrapped__.__get__(f.__self__)
    function = f.__wrapped__ if isinstance(f, JitFunction) and f._around is None else f
    if not callable(function):
        raise TypeError(f"shard_map: f is of class {type(f).__name__}; a function is needed{at(user_line())}")
    sharded = _Sharded(function_name(function), _parameters(function), mesh, in_specs, out_specs, check_vma)
    engines = tuple(e for e in mesh.engines if e)
    return JitFunction(function, Binder(function), None, engines=engines, around=sharded.around)


def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return ()


def _check_specs(what: str, specs: Any, mesh: Mesh) -> None:
    """TypeError for what is no spec, ShapeError for axes that the mesh has not."""
    for spec in leaves(specs):
        if not isinstance(spec, PartitionSpec):
            raise TypeError(
                f"shard_map: {what} holds {spec!r} of class {type(spec).__name__}; a tn.P, or a pytree of them, is "
                f"needed{at(user_line())}"
            )
        for name in sorted(spec.names - set(mesh.axis_names)):
            known = ", ".join(map(repr, mesh.axis_names))
            raise ShapeError(
                f"shard_map: {what} holds {spec}, which names axis {name!r}; one of {known} is needed{at(user_line())}"
            )


def _by_leaf(specs: Any, value: Any, what: str) -> list[PartitionSpec]:
    """A spec for each leaf: specs may stand for whole subtrees."""
    if specs is None:
        specs = WHOLE
    if isinstance(specs, PartitionSpec):
        return [specs] * len(leaves(value))
    pairs, differs = paired(specs, value)
    if differs:
        raise ShapeError(
            f"shard_map: {what} has the structure {structure(specs)}; what it is for has {structure(value)}, and a "
            f"prefix of that is needed, not one {differs}{at(user_line())}"
        )
    return [s for k, (g, h) in enumerate(pairs) for s in _by_leaf(g, h, f"{what}[{k}]")]


@dataclass(frozen=True)
class _Sharded:
    """One use of ``shard_map``."""

    name: str
    parameters: tuple[str, ...]
    mesh: Mesh
    in_specs: Any
    out_specs: Any
    check_vma: bool

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function of whole arrays; it runs inside a trace."""

        def whole(*args: Any, **kwargs: Any) -> Any:
            if kwargs:
                raise TypeError(
                    f"{self.name}: arguments {', '.join(kwargs)} by keyword; by position is needed under "
                    f"shard_map{at(user_line())}"
                )
            return self._call(function, args)

        return whole

    def _call(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        trace = running_trace("shard_map")
        if trace.spread is not None:
            raise TraceError(f"shard_map: inside another shard_map; one mesh is needed for both{at(user_line())}")
        specs = self.in_specs
        if isinstance(specs, tuple | list) and len(specs) != len(args):
            raise ShapeError(
                f"shard_map: in_specs has {len(specs)} specs, {self.name} is called with {len(args)} arguments; one "
                f"for each is needed{at(user_line())}"
            )
        each = [_by_leaf(s, a, "in_specs") for s, a in zip(_repeated(specs, len(args)), args, strict=True)]
        spread = Spread(trace, self.mesh.grid)
        given = [self._shards(spread, trace, k, a, s) for k, (a, s) in enumerate(zip(args, each, strict=True))]
        with _spread(trace, spread):
            results, treedef = opened(function(*given), f"{self.name}: the result")
            wanted = _by_leaf(self.out_specs, unflatten(treedef, results), "out_specs")
            read = [self._read(trace, spread, x, spec) for x, spec in zip(results, wanted, strict=True)]
        joined = [
            self._joined(trace, spread, x, spec) if isinstance(x, _Result) else x
            for x, spec in zip(read, wanted, strict=True)
        ]
        trace.partial |= spread.partial()
        return unflatten(treedef, joined)

    # -- arguments ---------------------------------------------------------------------------------------------------

    def _shards(self, spread: Spread, trace: Trace, number: int, argument: Any, specs: list[PartitionSpec]) -> Any:
        values, treedef = opened(argument, f"{self.name}: argument {number}")
        name = self.parameters[number] if number < len(self.parameters) else f"args[{number}]"
        made = [
            self._shard(spread, trace, f"argument {name}{path}", x, spec)
            for x, path, spec in zip(values, paths(treedef), specs, strict=True)
        ]
        return unflatten(treedef, made)

    def _shard(self, spread: Spread, trace: Trace, name: str, x: Any, spec: PartitionSpec) -> Any:
        if not (type(x) is TracedArray or isinstance(x, np.ndarray | np.generic) or is_tenferro_array(x)):
            if spec.names:
                raise ShapeError(
                    f"shard_map: {name} of class {_class_name(x)} has spec {spec}; P() is needed for what is no "
                    f"array{at(user_line())}"
                )
            return x
        array = as_traced(trace, x, "shard_map")
        self._check_rank(name, array, spec)
        value = spread.at_edge("entered", array.read(), spec.names)
        grid = spread.grid
        if grid.remote is None or grid.is_whole:
            self._check_sizes(trace, name, array, spec)
            value = spread.cut(value, spec.parts)
        elif spec.names:
            value = spread.own(value, spec.names)
        cell = Cell(trace, value)
        cell.origin = name
        return TracedArray(cell, ArrayType(array.dtype, value.type.shape, array.type.weak), scalar=array._scalar)

    def _check_rank(self, name: str, array: TracedArray, spec: PartitionSpec) -> None:
        if len(spec.parts) > array.ndim:
            raise ShapeError(
                f"shard_map: {name} has rank {array.ndim}, its spec {spec} speaks of {len(spec.parts)} axes; a spec "
                f"of at most {array.ndim} is needed{at(user_line())}"
            )

    def _check_sizes(self, trace: Trace, name: str, array: TracedArray, spec: PartitionSpec) -> None:
        for axis, (part, size) in enumerate(zip(spec.parts, array.type.shape, strict=False)):
            count = self.mesh.grid.size(part)
            if part and not trace.guard("==", mod(size, count), 0):
                names = " and ".join(map(repr, part))
                raise ShapeError(
                    f"shard_map: axis {axis} of {name} has size {trace.describe(size)}; a multiple of {count} is "
                    f"needed, the size of the mesh along {names}{at(user_line())}"
                )

    # -- results -----------------------------------------------------------------------------------------------------

    def _read(self, trace: Trace, spread: Spread, x: Any, spec: PartitionSpec) -> Any:
        """A result's present value; numbers and the like as they are."""
        if type(x) is not TracedArray and (isinstance(x, np.ndarray) or is_tenferro_array(x)):
            x = captured(trace, x)
        if type(x) is TracedArray:
            x.live_trace()
            self._check_rank("a result", x, spec)
            value = x.read()
            self._check_same(spread.axes(value), f"a result {value.type}", spec)
            return _Result(x, value)
        if spec.names:
            raise ShapeError(
                f"shard_map: a result of class {_class_name(x)} has spec {spec}; P() is needed for what is no "
                f"array{at(user_line())}"
            )
        if type(x) is Dim:
            self._check_same(spread.axes(operand(trace, x, "shard_map")[0]), "a size", spec)
        return x

    def _check_same(self, axes: frozenset[str], what: str, spec: PartitionSpec) -> None:
        differing = sorted(axes - spec.names)
        if differing and self.check_vma:
            name = differing[0]
            raise ShapeError(
                f"shard_map: out_specs has {spec} for {what} that may differ along mesh axis {name!r}; a spec that "
                f"names it, or a collective over it such as tn.psum(x, {name!r}), is needed{at(user_line())}"
            )

    def _joined(self, trace: Trace, spread: Spread, result: _Result, spec: PartitionSpec) -> TracedArray:
        joined = spread.at_edge("left", spread.join(result.value, spec.parts), spec.names)
        if spread.differs(joined):
            joined = build.copied(trace, joined)
        x = result.variable
        return TracedArray(Cell(trace, joined), ArrayType(x.dtype, joined.type.shape, x.type.weak), scalar=x._scalar)


@dataclass(frozen=True, slots=True)
class _Result:
    """What the function returned: the variable, and its value then."""

    variable: TracedArray
    value: Operand


def _class_name(x: Any) -> str:
    """The class as the caller knows it: a traced int is an int."""
    return "int" if type(x) is Dim else type(x).__name__


def _repeated(specs: Any, count: int) -> Sequence[Any]:
    return specs if isinstance(specs, tuple | list) else [specs] * count


@contextmanager
def _spread(trace: Trace, spread: Spread) -> Iterator[None]:
    trace.spread = spread
    try:
        yield
    finally:
        trace.spread = None
