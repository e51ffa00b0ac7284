"""Transformed functions outside ``jit``: a function and concrete arguments in, its result out, by way of a program that
serves this one call.

The function sees traced arrays whose elements are known: ``if x > 0``, ``print(x)`` and ``while`` work. It is traced at
each call. What a transformation makes of it is made once: where the function recorded what it has recorded in a call
before, that call's program is run.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from tenferro.array import wrap
from tenferro.compiled import Compiled, place_of
from tenferro.engines.engine import Engine
from tenferro.naming import not_on_one
from tenferro.programs import targets_of
from tenferro.runtime import default_runtime
from tenferro.staging import Function, Stage, Staged
from tenferro.tracer.capture_guards import NO_CAPTURES
from tenferro.tracer.entry import trace_program
from tenferro.tracer.errors import REFUSALS
from tenferro.tracer.program import ArrayType
from tenferro.tracer.records import dataclass
from tenferro.tracer.result import TraceResult
from tenferro.tracer.signature import as_native
from tenferro.tracer.trace import KINDS, Trace, check_dtype, check_ndarray, is_tenferro_array, running_trace
from tenferro.tracer.traced import TracedArray, captured
from tenferro.tracer.tree import TreeDef, opened, paths, unflatten

MAX_KNOWN = 512


@dataclass(frozen=True, slots=True)
class _Known:
    """A program that was run for a recording. ``order``: for each of its inputs where it stood in the trace, among the
    captured arrays, or −1 − k: among the constants."""

    compiled: Compiled
    order: tuple[int, ...]


class _Served(Exception):
    """The trace is over: there is a program for what it recorded."""

    def __init__(self, compiled: Compiled, originals: list[Any]) -> None:
        super().__init__()
        self.compiled = compiled
        self.originals = originals


_lock = threading.Lock()
_known: OrderedDict[Hashable, _Known] = OrderedDict()


def call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> Any:
    """``function(*args, **kwargs)`` in a trace of its own, and run."""
    return _Call(name, args, kwargs).run(function)


def staged(transformation: Staged, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> Any:
    """What a transformation makes of a function, for one call."""
    return _Call(name, args, kwargs).run_staged(lambda *a, **k: transformation.stage(function, a, k))


class _Call:
    """One call, in a trace of its own."""

    def __init__(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._name = name
        self._given, self._treedef = opened((args, kwargs), f"{name}: the arguments")
        self._held: list[Any] = []
        self._trace: Trace | None = None
        self._key: Hashable | None = None
        self._late = 0

    def run(self, function: Callable[..., Any]) -> Any:
        """The result of a function."""
        return self._run(function)

    def run_staged(self, stage: Callable[..., Stage]) -> Any:
        """The result of a transformation, by a program that is there already if there is one."""

        def finished(*args: Any, **kwargs: Any) -> Any:
            found = stage(*args, **kwargs)
            trace = found.trace
            self._key = None if REFUSALS.get() else self._key_of(trace, found)
            with _lock:
                known = None if self._key is None else _known.get(self._key)
                if known is not None and self._key is not None:
                    _known.move_to_end(self._key)
            if known is not None:
                raise _Served(known.compiled, _in_order(trace, known.order))
            self._late = len(trace.late)
            return found.finish()

        try:
            return self._run(finished)
        except _Served as served:
            compiled, originals = served.compiled, served.originals
        return compiled.run(self._memory(originals), originals, self._is_wrapped(originals))

    def _key_of(self, trace: Trace, found: Stage) -> Hashable | None:
        key = found.key()
        if key is None:
            return None
        arrays = (array for _, array in trace.captured.values())
        return (self._name, _engine_of(arrays), key)

    def _run(self, function: Callable[..., Any]) -> Any:
        name = self._name

        def run(_: list[Any]) -> Any:
            trace = self._trace = running_trace(name)
            trace.is_once = True
            values = [self._argument(trace, k, x) for k, x in enumerate(self._given)]
            positional, named = unflatten(self._treedef, values)
            return function(*positional, **named)

        def flatten(result: Any) -> tuple[list[Any], TreeDef]:
            return opened(result, f"{name}: the result")

        try:
            traced = trace_program(function, (), run, flatten, name)
            inputs = dict(traced.captured) | dict(traced.constants)
            originals = [inputs[k] for k in range(len(inputs))]
            compiled = self._compiled(traced, originals)
            self._remember(compiled, originals)
        finally:
            self._end()
        return compiled.run(self._memory(originals), originals, self._is_wrapped(originals))

    def _compiled(self, traced: TraceResult, originals: Sequence[Any]) -> Compiled:
        engines = targets_of(self._name, _engine([*self._given, *originals], self._name), (), traced.program)
        places = tuple([place_of(x) for x in self._memory(originals)])
        wrapped = self._is_wrapped(originals)
        return Compiled(traced, NO_CAPTURES, default_runtime(), engines, wrap, True, places, wrapped)

    def _remember(self, compiled: Compiled, originals: Sequence[Any]) -> None:
        """Keep the program for the next recording of the key, unless what was made of this one reads more than it."""
        trace = self._trace
        if self._key is None or trace is None or len(trace.late) != self._late:
            return
        numbers = {id(array): k for k, (_, array) in enumerate(trace.captured.values())}
        numbers |= {id(array): -1 - k for k, (_, array) in enumerate(trace.constants)}
        with _lock:
            _known[self._key] = _Known(compiled, tuple([numbers[id(x)] for x in originals]))
            if len(_known) > MAX_KNOWN:
                _known.popitem(last=False)

    def _end(self) -> None:
        """Let the arrays go that the trace holds: variables and the trace know each other."""
        trace, self._trace = self._trace, None
        if trace is not None:
            trace.captured, trace.variables, trace.constants, trace.evaluation = {}, {}, [], None

    def _argument(self, trace: Trace, k: int, x: Any) -> Any:
        """Leaf k of the arguments as the function sees it: arrays and floats are traced, whatever else is itself."""
        if isinstance(x, np.ndarray) or is_tenferro_array(x):
            if type(x) is not np.ndarray or x.dtype.kind not in KINDS:
                self._check(k, x)
            return captured(trace, x)
        if isinstance(x, np.generic) or type(x) in (float, complex):
            array = np.asarray(x)
            self._held.append(array)  # its id must stay its own while the trace runs
            found = captured(trace, array)
            type_ = ArrayType(found.type.dtype, (), not isinstance(x, np.generic))
            return TracedArray(found._cell, type_, None, None, True)
        return x

    def _check(self, k: int, x: Any) -> None:
        """DtypeError for an array that no engine holds, by the argument's name."""
        name = f"{self._name}: argument{paths(self._treedef)[k].removeprefix('[0]')}"
        if isinstance(x, np.ndarray):
            check_ndarray(x, name)
        check_dtype(np.dtype(x.dtype), name)

    def _memory(self, originals: Sequence[Any]) -> list[Any]:
        return [as_native(_memory(x), "x", self._name) for x in originals]

    def _is_wrapped(self, originals: Sequence[Any]) -> bool:
        return any(is_tenferro_array(x) for x in (*self._given, *originals))


def _in_order(trace: Trace, order: Iterable[int]) -> list[Any]:
    """The arrays of a trace in the order of a program's inputs."""
    arrays = [array for _, array in trace.captured.values()]
    return [arrays[k] if k >= 0 else trace.constants[-1 - k][1] for k in order]


def _memory(x: Any) -> Any:
    return x._data if is_tenferro_array(x) else x


def _engine_of(arrays: Iterable[Any]) -> tuple[str, ...]:
    """The engines that the tn.Arrays lie on."""
    return tuple([x.device for x in arrays if is_tenferro_array(x)])


def _engine(values: Sequence[Any], name: str) -> Engine:
    """The engine that holds the tn.Arrays among the values, else the default one."""
    found = {x._engine for x in values if is_tenferro_array(x)}
    if len(found) > 1:
        raise not_on_one(name, found)
    return found.pop() if found else default_runtime().engines()[0]
