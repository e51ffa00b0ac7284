"""A function is run on traced arrays: a bound call in, its program and what it reads from outside out."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

from tenferro.tracer import tree
from tenferro.tracer.attribute_hooks import unhooked
from tenferro.tracer.capture_guards import NO_CAPTURES, Captures
from tenferro.tracer.contents import evaluation
from tenferro.tracer.entry import LeafSpec, trace_program
from tenferro.tracer.result import TraceResult
from tenferro.tracer.signature import ArgumentLeaf, BoundCall
from tenferro.tracer.stored_result import Outside
from tenferro.tracer.substitution import Substitution, substituted
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.tree import TreeDef, opened

Around = Callable[[Callable[..., Any]], Callable[..., Any]]


def traced_alone(function: Callable[..., Any], name: str, call: BoundCall) -> tuple[TraceResult, Captures]:
    """The trace of a function that reads nothing from outside."""

    def run(values: list[Any]) -> Any:
        args, kwargs = call.rebuild(values)
        return function(*args, **kwargs)

    specs = [_spec(leaf) for leaf in call.dynamic]
    return trace_program(function, specs, run, lambda result: _opened(result, name), name), NO_CAPTURES


def traced(
    function: Callable[..., Any], name: str, around: Around | None, call: BoundCall
) -> tuple[TraceResult, Captures, Outside]:
    """The trace, what it reads from outside at each call, and what it has met there. ``around``: what is traced in the
    function's place is made of it by this."""
    known: list[tuple[Trace, Substitution]] = []

    def run(values: list[Any]) -> Any:
        args, kwargs = call.rebuild(values)
        trace = running_trace(name)
        with substituted(trace, function, call.receiver) as (copied, substitution):
            known.append((trace, substitution))
            substitution.effects.arguments(function, args, kwargs)
            with unhooked():
                for place, value in _static(call):
                    substitution.captured.argument(place, value)
            args = tuple([_given(a, substitution) for a in args])
            kwargs = {k: _given(a, substitution) for k, a in kwargs.items()}
            called = copied if around is None else around(copied)
            # An outside object among the results is read as one: where it stands.
            return _opened(called(*args, **kwargs), name)

    result = trace_program(function, [_spec(leaf) for leaf in call.dynamic], run, lambda found: found, name)
    trace, substitution = known[0]
    captured = substitution.captured
    captured.check_generators()
    asked = tuple(evaluation(trace).asked.values())
    captures = captured.captures(call.receiver, [array for _, array in result.captured], substitution.places, asked)
    functions = tuple(captured.functions.values())
    return result, captures, Outside(captured.owner, functions, tuple(captured.foreign), tuple(captured.doubts))


def _static(call: BoundCall) -> list[tuple[str, Any]]:
    """Names and values of the arguments that are no inputs of the program; without ``self``, which is a place."""
    return [*((leaf.name, leaf.value) for leaf in call.leaves if leaf.sort == "static"), *call.statics]


_FUNCTIONS = (FunctionType, MethodType, functools.partial)


def _given(argument: Any, substitution: Substitution) -> Any:
    """An argument whose functions read traced arrays where they would read outside ones."""
    if not any(isinstance(x, _FUNCTIONS) for x in tree.leaves(argument)):
        return argument
    return tree.map(lambda x: substitution.function(x) if isinstance(x, _FUNCTIONS) else x, argument)


def _opened(result: Any, name: str) -> tuple[list[Any], TreeDef]:
    return opened(result, f"{name}: the result")


def _spec(leaf: ArgumentLeaf) -> LeafSpec:
    if leaf.sort == "int":
        return LeafSpec("int", leaf.name, hint=leaf.value)
    return LeafSpec(
        "scalar" if leaf.scalar else "array", leaf.name, leaf.value.dtype, leaf.value.shape,
        weak=leaf.weak, donated=leaf.donated, tenferro=leaf.wrapped,
    )  # fmt: skip
