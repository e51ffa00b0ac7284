"""``jit``: a Python function in, a function that traces it once and runs the compiled program ever after out.

A call looks for a program in two steps: by the exact dtypes and shapes of its arguments, which is one dict lookup, then
by structure, dtypes, ranks and static values among the programs whose guards hold. Only then is the function traced.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar, overload

import numpy as np

from tenferro.array import Array, wrap
from tenferro.compiled import Compiled
from tenferro.engines.engine import Engine
from tenferro.explain import CacheInfo, Explanation, TraceRecord, describe, reason_for
from tenferro.guards import in_words
from tenferro.lowered import Lowered
from tenferro.runtime import default_runtime
from tenferro.tracer.captures import NO_CAPTURES, captures, check_generators, snapshot
from tenferro.tracer.config import config
from tenferro.tracer.entry import LeafSpec, TraceResult, trace_program
from tenferro.tracer.errors import LoweringError, RecompileError, RecompileWarning
from tenferro.tracer.lines import at, user_frame, user_line
from tenferro.tracer.program import SemanticProgram
from tenferro.tracer.signature import Argnames, Argnums, ArgumentLeaf, Binder, BoundCall
from tenferro.tracer.trace import current_trace
from tenferro.tracer.tree import container, flatten

F = TypeVar("F", bound=Callable[..., Any])

MAX_PROGRAMS = 64
MAX_EXACT = 1024
WARN_FROM = 8

_MIN, _MAX = -(2**63), 2**63 - 1


@dataclass(slots=True)
class _Found:
    """A program for a call, and its inputs in the program's order."""

    compiled: Compiled
    inputs: list[Any]
    originals: list[Any]
    wrapped: bool


@dataclass(slots=True)
class _Exact:
    """A program for calls with these very dtypes and shapes. ``checked``: captures or int arguments are to be looked at
    before each run."""

    compiled: Compiled
    checked: bool


class JitFunction:
    """A jitted function. Call it as the function itself; thread-safe; pickles by name.

    ``__wrapped__`` is the Python function. Made by ``tn.jit``."""

    __wrapped__: Callable[..., Any]
    __name__: str
    __qualname__: str

    def __init__(
        self, function: Callable[..., Any], binder: Binder, max_compiles: int | None, eager: bool = False
    ) -> None:
        functools.update_wrapper(self, function)
        self._binder = binder
        self._max_compiles = max_compiles
        self._eager = eager  # an operation on tn.Array: no captures, no lines, no warnings
        self._plain = not (binder.static_nums or binder.static_names)
        self._exact: dict[Hashable, _Exact] = {}
        self._programs: dict[Hashable, tuple[Compiled, ...]] = {}
        self._described: dict[Hashable, dict[str, str]] = {}
        self._traces: list[TraceRecord] = []
        self._hits = 0
        self._lock = threading.RLock()
        _functions.add(self)

    # -- calls -------------------------------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if current_trace() is not None:
            return self.__wrapped__(*args, **kwargs)
        if kwargs or not self._plain:
            return self._call(args, kwargs)
        key: list[Any] = []
        for a in args:
            if type(a) is not np.ndarray:
                return self._call_mixed(args)
            key += (a.dtype, a.shape, a.flags.num)
        exact = self._exact.get(tuple(key))
        if exact is None or exact.checked:
            return self._call(args, {}) if exact is None else self._call_checked(exact, args, args, False)
        self._hits += 1
        exact.compiled.used = self._hits
        return exact.compiled.run(args, args, False)

    def _call_mixed(self, args: tuple[Any, ...]) -> Any:
        """Positional arrays and numbers of any kind; anything else takes the general way."""
        key: list[Any] = []
        inputs: list[Any] = []
        wrapped = False
        for a in args:
            cls = type(a)
            if cls is np.ndarray:
                key += (a.dtype, a.shape, a.flags.num)
                inputs.append(a)
            elif cls is Array:
                data, wrapped = a._data, True
                key += (a._engine, data.dtype, data.shape, data.flags.num)
                inputs.append(data)
            elif cls is int and _MIN <= a <= _MAX:
                key.append(cls)
                inputs.append(a)
            elif cls is float or cls is complex or issubclass(cls, np.generic):
                key.append(cls)
                inputs.append(np.asarray(a))
            else:
                return self._call(args, {})
        exact = self._exact.get(tuple(key))
        if exact is None:
            return self._call(args, {})
        if exact.checked:
            return self._call_checked(exact, inputs, args, wrapped)
        self._hits += 1
        exact.compiled.used = self._hits
        return exact.compiled.run(inputs, args, wrapped)

    def _call_checked(self, exact: _Exact, inputs: Any, args: tuple[Any, ...], wrapped: bool) -> Any:
        late = exact.compiled.late(None)
        if late is None:
            return self._call(args, {})
        values = [*inputs, *late.inputs]
        if not exact.compiled.guard(values):
            return self._call(args, {})
        self._hits += 1
        exact.compiled.used = self._hits
        return exact.compiled.run(values, [*args, *late.originals], wrapped or late.wrapped)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any], method: bool = False) -> Any:
        call = self._bind(args, kwargs, method)
        found = self._find(call)
        if self._plain and not kwargs and call.receiver is None:
            self._remember(args, call, found.compiled)
        return found.compiled.run(found.inputs, found.originals, found.wrapped)

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any], method: bool = False) -> BoundCall:
        receiver = args[0] if args and (method or self._binder.is_method) and _is_object(args[0]) else None
        return self._binder.bind(args, kwargs, receiver)

    def _remember(self, args: tuple[Any, ...], call: BoundCall, compiled: Compiled) -> None:
        """Make the exact entry for calls like this one, unless an argument had to be copied or opened."""
        if len(args) != len(call.dynamic):
            return
        key: list[Any] = []
        for a, leaf in zip(args, call.dynamic, strict=True):
            if leaf.original is not a:
                return
            if leaf.wrapped or type(a) is np.ndarray:
                data = a._data if leaf.wrapped else a
                if leaf.value is not data:
                    return
                key += (a._engine, data.dtype, data.shape, data.flags.num) if leaf.wrapped else (
                    data.dtype, data.shape, data.flags.num,
                )  # fmt: skip
            elif leaf.sort == "static":
                return
            else:
                key.append(type(a))
        if len(self._exact) >= MAX_EXACT:
            self._exact.clear()
        checked = compiled.has_late or any(leaf.sort == "int" for leaf in call.dynamic)
        self._exact[tuple(key)] = _Exact(compiled, checked)

    # -- programs ----------------------------------------------------------------------------------------------------

    def _find(self, call: BoundCall) -> _Found:
        engine = _engine_of(call, self.__name__)
        key = (call.key, engine.id)
        found = self._match(key, call)
        if found is None:
            with self._lock:
                found = self._match(key, call)
                if found is None:
                    self._trace(key, call, engine)
                    found = self._match(key, call, own=True)
                    assert found is not None
                    return found
        self._hits += 1
        found.compiled.used = self._hits
        return found

    def _match(self, key: Hashable, call: BoundCall, own: bool = False) -> _Found | None:
        """The first program whose guards hold. ``own``: the newest one, which this very call was traced for."""
        for compiled in self._programs.get(key, ()):
            late = compiled.late(call.receiver)
            if late is None:
                continue
            inputs = [*(leaf.value for leaf in call.dynamic), *late.inputs]
            if own or compiled.guard(inputs):
                originals = [*(leaf.original for leaf in call.dynamic), *late.originals]
                return _Found(compiled, inputs, originals, call.wrapped or late.wrapped)
        return None

    def _trace(self, key: Hashable, call: BoundCall, engine: Engine) -> None:
        reason, line = reason_for(call, self._programs.get(key, ()), self._described)
        if self._max_compiles is not None and len(self._traces) >= self._max_compiles:
            raise RecompileError(
                f"{self.__name__}: {reason}{at(line)}; max_compiles={self._max_compiles} allows no further "
                f"trace{at(user_line())}"
            )
        started = time.perf_counter()
        before = None if self._eager else snapshot(self.__wrapped__, call.receiver)
        result = self._traced(call)
        traced = time.perf_counter()
        found = NO_CAPTURES
        if before is not None:
            check_generators(before, self.__name__)
            found = captures(self.__wrapped__, call.receiver, before, [array for _, array in result.captured])
        compiled = Compiled(result, found, default_runtime(), engine, wrap, not self._eager)
        prepared = time.perf_counter()
        guards = [in_words(str(g), compiled.program) + at(g.line) for g in compiled.program.guards]
        record = TraceRecord(
            len(self._traces) + 1, reason, line, (traced - started) * 1e3, (prepared - traced) * 1e3,
            len(compiled.program.operations), (*guards, *(g.text for g in found.guards)),
        )  # fmt: skip
        self._keep(key, call, compiled, record)

    def _traced(self, call: BoundCall) -> TraceResult:
        def run(values: list[Any]) -> Any:
            args, kwargs = call.rebuild(values)
            return self.__wrapped__(*args, **kwargs)

        return trace_program(self.__wrapped__, [_spec(leaf) for leaf in call.dynamic], run, flatten, self.__name__)

    def _keep(self, key: Hashable, call: BoundCall, compiled: Compiled, record: TraceRecord) -> None:
        self._evict()
        compiled.used = self._hits
        self._programs[key] = (compiled, *self._programs.get(key, ()))
        self._described[key] = describe(call)
        self._traces.append(record)
        if self._eager:
            return
        for stage in sorted(config().show):
            print(f"-- {self.__name__}: {stage}", self._show(call, compiled, stage), sep="\n", file=sys.stderr)
        if record.number >= WARN_FROM:
            where = at(record.line)
            warnings.warn(
                f"{self.__name__}: traced {record.number} times; this time because {record.reason}{where}",
                RecompileWarning,
                stacklevel=_user_depth(),
            )

    def _show(self, call: BoundCall, compiled: Compiled, stage: str) -> str:
        late = compiled.late(call.receiver)
        assert late is not None
        return compiled.lowered([*(leaf.value for leaf in call.dynamic), *late.inputs]).as_text(stage)

    def _evict(self) -> None:
        every = [(c.used, key, c) for key, group in self._programs.items() for c in group]
        if len(every) < MAX_PROGRAMS:
            return
        _, key, oldest = min(every, key=lambda item: item[0])
        left = tuple(c for c in self._programs[key] if c is not oldest)
        if left:
            self._programs[key] = left
        else:
            del self._programs[key], self._described[key]
        self._exact = {k: e for k, e in self._exact.items() if e.compiled is not oldest}

    # -- looking inside ----------------------------------------------------------------------------------------------

    def trace(self, *args: Any, **kwargs: Any) -> SemanticProgram:
        """The program that a call with these arguments runs, before any pass."""
        return self._find(self._bind(args, kwargs)).compiled.program

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """The stages of the program that a call with these arguments runs: ``exec_program``, ``plan``, ``regions``,
        ``as_text(stage)``, ``memory()``."""
        return self._lowered(self._bind(args, kwargs))

    def _lowered(self, call: BoundCall) -> Lowered:
        found = self._find(call)
        return found.compiled.lowered(found.inputs)

    def explain(self) -> Explanation:
        """For each trace: what was new, at which line, and what it cost."""
        with self._lock:
            count = sum(len(group) for group in self._programs.values())
            return Explanation(self.__name__, tuple(self._traces), count, self._hits)

    def cache_info(self) -> CacheInfo:
        """Programs kept, traces made, calls served, and the machine code behind them."""
        with self._lock:
            kept = [c.prepared.executable for group in self._programs.values() for c in group]
            kernels, size = sum(e.kernels for e in kept), sum(e.kernel_bytes for e in kept)
            return CacheInfo(len(kept), len(self._traces), self._hits, kernels, size)

    def cache_clear(self) -> None:
        """Forget all programs and counts."""
        with self._lock:
            self._exact, self._programs, self._described = {}, {}, {}
            self._traces, self._hits = [], 0

    # -- an object like a function -----------------------------------------------------------------------------------

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else BoundMethod(self, instance)

    def __reduce__(self) -> str:
        return str(self.__qualname__)

    def __repr__(self) -> str:
        return f"<jit {self.__qualname__}>"


class BoundMethod:
    """A jitted method with its object; everything that ``JitFunction`` offers, without ``self``."""

    __slots__ = ("__func__", "__self__")

    def __init__(self, function: JitFunction, instance: Any) -> None:
        self.__func__ = function
        self.__self__ = instance

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if current_trace() is not None:
            return self.__func__.__wrapped__(self.__self__, *args, **kwargs)
        return self.__func__._call((self.__self__, *args), kwargs, method=True)

    def trace(self, *args: Any, **kwargs: Any) -> SemanticProgram:
        """As ``JitFunction.trace``."""
        return self.__func__._find(self.__func__._bind((self.__self__, *args), kwargs, True)).compiled.program

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """As ``JitFunction.lower``."""
        return self.__func__._lowered(self.__func__._bind((self.__self__, *args), kwargs, True))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__func__, name)

    def __repr__(self) -> str:
        return f"<jit {self.__func__.__qualname__} of {self.__self__!r}>"


def _is_object(value: Any) -> bool:
    """Whether ``self`` is neither an array nor a number nor a pytree: then its parts are captures."""
    if isinstance(value, np.ndarray | np.generic | Array | int | float | complex | str):
        return False
    return value is not None and container(type(value)) is None


def _engine_of(call: BoundCall, name: str) -> Engine:
    """The engine that holds the tn.Array arguments; the default one without any."""
    engines = {leaf.original._engine for leaf in call.dynamic if leaf.wrapped} - {None}
    if len(engines) > 1:
        ids = " and ".join(sorted(e.id for e in engines))
        raise LoweringError(f"{name}: arguments on {ids}; one engine is needed, x.to(engine) moves{at(user_line())}")
    return engines.pop() if engines else default_runtime().engines()[0]


def _spec(leaf: ArgumentLeaf) -> LeafSpec:
    if leaf.sort == "int":
        return LeafSpec("int", leaf.name, hint=leaf.value)
    is_scalar = not isinstance(leaf.original, np.ndarray | Array)
    return LeafSpec(
        "scalar" if is_scalar else "array", leaf.name, leaf.value.dtype, leaf.value.shape,
        weak=leaf.weak, donated=leaf.donated, tenferro=leaf.wrapped,
    )  # fmt: skip


def _user_depth() -> int:
    """The stacklevel at which a warning points at the user's own line."""
    target, frame, depth = user_frame(), sys._getframe(1), 1
    while frame is not None and frame is not target:
        frame, depth = frame.f_back, depth + 1  # type: ignore[assignment]
    return depth


_functions: weakref.WeakSet[JitFunction] = weakref.WeakSet()


def _new_locks() -> None:
    # A thread that held a lock when the process forked does not exist in the child.
    for function in list(_functions):
        function._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_locks)


@overload
def jit(
    f: Callable[..., Any],
    *,
    static_argnums: Argnums = ...,
    static_argnames: Argnames = ...,
    donate_argnums: Argnums = ...,
    max_compiles: int | None = ...,
) -> JitFunction: ...


@overload
def jit(
    f: None = None,
    *,
    static_argnums: Argnums = ...,
    static_argnames: Argnames = ...,
    donate_argnums: Argnums = ...,
    max_compiles: int | None = ...,
) -> Callable[[Callable[..., Any]], JitFunction]: ...


def jit(
    f: Callable[..., Any] | None = None,
    *,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
    donate_argnums: Argnums = (),
    max_compiles: int | None = None,
) -> Any:
    """Compile a function of arrays: traced at the first call, compiled, and run as machine code from then on.

    f: any function of arrays, numbers and pytrees of them; without it ``jit(...)`` is a decorator. Methods work.
    static_argnums, static_argnames: arguments taken by value, which must be hashable; each value is a program.
    donate_argnums: arguments that the function may write; the writes reach the caller's arrays when the call succeeds.
    max_compiles: raise RecompileError instead of tracing more often than this.

    One program serves every size; branches on sizes and on captured numbers are guards (``f.explain()``)."""
    if max_compiles is not None and max_compiles < 1:
        raise ValueError(f"jit: max_compiles is {max_compiles}; at least 1, or None, is needed")

    def decorate(function: Callable[..., Any]) -> JitFunction:
        if not callable(function):
            raise TypeError(f"jit: a {type(function).__name__}; a function is needed")
        return JitFunction(function, Binder(function, static_argnums, static_argnames, donate_argnums), max_compiles)

    return decorate if f is None else decorate(f)
