"""Functions traced without an engine: a function and arguments in; its program, or the values that the references of
its operations give, out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenferro.tracer.dims import DimExpr, Leaf, evaluate
from tenferro.tracer.entry import LeafSpec, trace_program
from tenferro.tracer.op import Library
from tenferro.tracer.program import DimScalar, Literal, Operand, ShapeGuard, Value
from tenferro.tracer.result import TraceResult
from tenferro.tracer.tree import flatten, unflatten


def _spec(name: str, x: Any, donated: bool) -> LeafSpec:
    if type(x) is int:
        return LeafSpec("int", name, hint=x)
    if type(x) in (float, complex):
        return LeafSpec("scalar", name, np.asarray(x).dtype, weak=True)
    if isinstance(x, np.generic):
        return LeafSpec("scalar", name, x.dtype)
    return LeafSpec("array", name, x.dtype, x.shape, donated=donated)


def traced(function: Callable[..., Any], *args: Any, donate: tuple[int, ...] = ()) -> TraceResult:
    leaves, treedef = flatten(args)
    names = function.__code__.co_varnames if hasattr(function, "__code__") else ()
    plain = len(leaves) == len(args)
    specs = [_spec(names[k] if plain and k < len(names) else f"x{k}", x, k in donate) for k, x in enumerate(leaves)]
    name = getattr(function, "__name__", "function")
    return trace_program(function, specs, lambda values: function(*unflatten(treedef, values)), flatten, name)


def _sizes(value: Any, env: dict[Leaf, int]) -> Any:
    if isinstance(value, DimExpr):
        return evaluate(value, env)
    return tuple(_sizes(v, env) for v in value) if isinstance(value, tuple) else value


class Run:
    """One evaluation of a traced program on arguments."""

    def __init__(self, result: TraceResult, args: tuple[Any, ...]) -> None:
        self.result = result
        self.env: dict[Leaf, int] = {}
        self.values: dict[int, np.ndarray[Any, Any]] = {}
        program = result.program
        late = dict(result.captured) | dict(result.constants)
        for index, declared in enumerate(program.inputs):
            x = args[index] if index < len(args) else late[index]
            if declared.kind == "int":
                self.env[Leaf("int", index)] = x
            array = np.asarray(x)
            assert array.dtype == declared.value.type.dtype
            for axis, n in enumerate(array.shape):
                self.env[Leaf("extent", index, axis)] = n
            self.values[declared.value.id] = array
        if all(self.holds(g) for g in program.guards):
            self._run()

    def holds(self, guard: ShapeGuard) -> bool:
        a, b = (_sizes(x, self.env) for x in (guard.lhs, guard.rhs))
        answer: bool = {"==": a == b, "<": a < b, "<=": a <= b}[guard.relation]
        return answer == guard.holds

    @property
    def guards_hold(self) -> bool:
        return all(self.holds(g) for g in self.result.program.guards)

    def value(self, x: Operand) -> np.ndarray[Any, Any]:
        match x:
            case Value(id=number):
                return self.values[number]
            case Literal(value=value, dtype=dtype):
                return np.asarray(value, dtype)
            case DimScalar(expr=expr, dtype=dtype):
                return np.asarray(evaluate(expr, self.env), dtype)

    def _run(self) -> None:
        for number, operation in enumerate(self.result.program.operations):
            # A run-time extent has no value before its operation has run, and its reference needs none.
            params = {k: None if k == "extent" else _sizes(v, self.env) for k, v in operation.params.items()}
            with np.errstate(all="ignore"):
                found = operation.op.reference(*(self.value(i) for i in operation.inputs), **params)
            (output,) = operation.outputs
            array = np.asarray(found)
            if isinstance(operation.op.form, Library) and operation.op.form.runtime_extents:
                self.env.setdefault(Leaf("runtime", number, 0), array.shape[0])
            assert array.dtype == output.type.dtype, (str(operation), array.dtype)
            assert array.shape == _sizes(output.type.shape, self.env) or not array.shape, str(operation)
            self.values[output.id] = np.array(np.broadcast_to(array, _sizes(output.type.shape, self.env)))

    def output(self, index: int) -> np.ndarray[Any, Any]:
        return self.value(self.result.program.outputs[index])

    def results(self) -> Any:
        leaves: list[Any] = []
        for kind, x in self.result.out_leaves:
            match kind:
                case "array" | "scalar" | "number":
                    leaves.append(self.output(x))
                case "size":
                    leaves.append(_sizes(x, self.env))
                case "static":
                    leaves.append(x)
        return unflatten(self.result.out_treedef, leaves)


def run(function: Callable[..., Any], *args: Any) -> Any:
    """Trace and evaluate on the same arguments."""
    return Run(traced(function, *args), tuple(flatten(args)[0])).results()


def run_traced(result: TraceResult, *args: Any) -> Any:
    """Evaluate a program on other arguments, which its guards must admit."""
    made = Run(result, tuple(flatten(args)[0]))
    assert made.guards_hold, [str(g) for g in result.program.guards if not made.holds(g)]
    return made.results()


def agrees(function: Callable[..., Any], *args: Any) -> None:
    """The traced function gives what the same function gives on the arguments themselves: dtypes, shapes, values."""
    with np.errstate(all="ignore"):
        expected, _ = flatten(function(*[np.copy(a) if isinstance(a, np.ndarray) else a for a in args]))
    found, _ = flatten(run(function, *args))
    assert len(found) == len(expected)
    for got, want in zip(found, expected, strict=True):
        if not isinstance(want, np.ndarray | np.generic):
            assert type(got) is type(want) or isinstance(got, np.ndarray), (got, want)
            assert np.asarray(got) == np.asarray(want)
            continue
        got = np.asarray(got)
        assert got.dtype == want.dtype, (got.dtype, want.dtype)
        assert got.shape == want.shape, (got.shape, want.shape)
        tolerance = 50 * float(np.finfo(got.dtype).eps) if got.dtype.kind in "fc" else 0
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def op_names(result: TraceResult) -> list[str]:
    return [o.op.name for o in result.program.operations]


def guards(result: TraceResult) -> list[str]:
    return [str(g) for g in result.program.guards]
