"""Transformed functions outside ``jit``: a function and concrete arguments in, its result out, by way of a program that
serves this one call.

The function sees traced arrays whose elements are known: ``if x > 0``, ``print(x)`` and ``while`` work. It is traced at
each call; equal programs share their machine code, so that only the tracing is paid again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenferro.array import wrap
from tenferro.compiled import Compiled, place_of
from tenferro.engines.engine import Engine
from tenferro.naming import not_on_one
from tenferro.programs import targets_of
from tenferro.runtime import default_runtime
from tenferro.tracer.capture_guards import NO_CAPTURES
from tenferro.tracer.entry import trace_program
from tenferro.tracer.signature import as_native
from tenferro.tracer.trace import Trace, is_tenferro_array, running_trace
from tenferro.tracer.traced import TracedArray, captured
from tenferro.tracer.tree import TreeDef, opened, unflatten


def call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> Any:
    """``function(*args, **kwargs)`` in a trace of its own, and run."""
    given, treedef = opened((args, kwargs), f"{name}: the arguments")
    held: list[Any] = []

    def run(_: list[Any]) -> Any:
        trace = running_trace(name)
        trace.is_once = True
        positional, named = unflatten(treedef, [_argument(trace, x, name, held) for x in given])
        return function(*positional, **named)

    def flatten(result: Any) -> tuple[list[Any], TreeDef]:
        return opened(result, f"{name}: the result")

    traced = trace_program(function, (), run, flatten, name)
    arrays = [array for _, array in traced.captured]
    inputs = dict(traced.captured) | dict(traced.constants)
    memory = [as_native(_memory(inputs[k]), "x", name) for k in range(len(inputs))]
    runtime = default_runtime()
    engines = targets_of(name, _engine([*given, *arrays], name), (), traced.program)
    wrapped = any(is_tenferro_array(x) for x in (*given, *arrays))
    places = tuple(place_of(x) for x in memory)
    compiled = Compiled(traced, NO_CAPTURES, runtime, engines, wrap, True, places, wrapped)
    return compiled.run(memory, [inputs[k] for k in range(len(inputs))], wrapped)


def _argument(trace: Trace, x: Any, name: str, held: list[Any]) -> Any:
    """A leaf of the arguments as the function sees it: arrays and floats are traced, whatever else is itself."""
    if isinstance(x, np.ndarray) or is_tenferro_array(x):
        return captured(trace, x)
    if isinstance(x, np.generic) or type(x) in (float, complex):
        array = np.asarray(x)
        held.append(array)  # its id must stay its own while the trace runs
        found = captured(trace, array)
        return TracedArray(found._cell, _weak(found, not isinstance(x, np.generic)), None, None, True)
    return x


def _weak(found: TracedArray, weak: bool) -> Any:
    from tenferro.tracer.program import ArrayType

    return ArrayType(found.type.dtype, (), weak)


def _memory(x: Any) -> Any:
    return x._data if is_tenferro_array(x) else x


def _engine(values: list[Any], name: str) -> Engine:
    """The engine that holds the tn.Arrays among the values, else the default one."""
    found = {x._engine for x in values if is_tenferro_array(x)}
    if len(found) > 1:
        raise not_on_one(name, found)
    return found.pop() if found else default_runtime().engines()[0]
