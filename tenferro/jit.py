"""``jit``: a Python function in, a function that traces it once and runs the compiled program ever after out.

A call looks for a program in two steps: by the exact dtypes, shapes and structure of its arguments, one dict lookup
made here; then among all programs of the function, in ``tenferro.programs``, which traces where none fits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from types import MethodType
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from tenferro import call_key, nans
from tenferro.array import Array
from tenferro.disabling import is_disabled, plainly
from tenferro.engines.cpu.native_types import Callable as NativeCallable
from tenferro.naming import engine_name, engine_names
from tenferro.tracer.errors import LoweringError
from tenferro.tracer.exact import static_key
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.program import SemanticProgram
from tenferro.tracer.records import dataclass
from tenferro.tracer.signature import Argnames, Argnums, Binder, BoundCall, check_function
from tenferro.tracer.switches import is_paused
from tenferro.tracer.trace import current_trace
from tenferro.tracer.tree import container
from tenferro.transformed import Transformed, of_method, unwrapped

if TYPE_CHECKING:
    from tenferro.compiled import Compiled
    from tenferro.engines.cpu.entries import Entry
    from tenferro.engines.engine import Engine
    from tenferro.explain import CacheInfo, Explanation
    from tenferro.lowered import Lowered
    from tenferro.programs import Found, Programs
    from tenferro.shortcuts import Served, Shortcuts

MAX_EXACT = 1024
Around = Callable[[Callable[..., Any]], Callable[..., Any]]
"""A function in, what is traced in its place out; captures are the function's."""
_MISSED = object()


@dataclass(slots=True)
class _Exact:
    """A program for calls with these very dtypes and shapes. ``checked``: captures or int arguments are to be looked at
    before each run."""

    compiled: Compiled
    checked: bool
    runs: int = 0
    entry: Entry | None = None  # of its native calls

    def is_due(self) -> bool:
        """Whether to try for native calls: soon, then ever more seldom, and when an entry's calls are used up."""
        self.runs += 1
        return (self.runs & (self.runs - 1) == 0 and self.runs > 1) or (self.entry is not None and self.entry.is_spent)


class JitFunction(NativeCallable):
    """A jitted function. Call it as the function itself; thread-safe; pickles by name.

    ``__wrapped__`` is the Python function. Made by ``tn.jit``."""

    __slots__ = ("_native", "__dict__", "__weakref__")  # what native calls read, and all else
    __wrapped__: Callable[..., Any]
    __name__: str
    __qualname__: str

    def __init__(
        self,
        function: Callable[..., Any],
        binder: Binder,
        max_compiles: int | None,
        eager: bool = False,
        engines: tuple[str, ...] = (),
        around: Around | None = None,
    ) -> None:
        functools.update_wrapper(self, function)
        self.__dict__.setdefault("__name__", binder.name)
        self.__dict__.setdefault("__qualname__", binder.name)
        self._binder = binder
        self._settings = (max_compiles, eager, engines, around)
        self._around = around
        self._has_static = bool(binder.static_nums or binder.static_names)
        self._plain = not (self._has_static or binder.is_method)
        self._exact: dict[Hashable, _Exact] = {}
        self._evictions = 0
        self._found: Programs | None = None
        self._shortcuts: Shortcuts | None = None
        self.when_native: Callable[[Shortcuts], None] | None = None  # told when native calls begin

    @property
    def _programs(self) -> Programs:
        """Made at the first call: what traces and compiles is not imported before."""
        found = self._found
        if found is None:
            from tenferro.programs import Programs

            # Two threads may arrive here; setdefault lets one of them win.
            found = self.__dict__.setdefault("_made", Programs(self.__wrapped__, self.__name__, *self._settings))
            if (ready := self.__dict__.pop("_ready_calls", None)) is not None:
                found.adopt(ready)
            self._found = found
        return found

    # -- calls -------------------------------------------------------------------------------------------------------

    def _ready(self, call: BoundCall) -> tuple[Any] | None:
        """The result, in a tuple, where another process has left on disk all that it takes; only a process's first
        calls are served so (``tenferro.ready``)."""
        from tenferro import ready

        if not ready.is_open(self._settings, call) or (is_paused() and nans.is_on()):
            return None
        calls = self.__dict__.get("_ready_calls")
        if calls is None:
            calls = self.__dict__.setdefault("_ready_calls", ready.ReadyCalls(self.__wrapped__, self._around))
        return calls.serve(call)  # type: ignore[no-any-return]

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if current_trace() is not None:
            return _inlined(self)(*args, **kwargs)
        if is_paused() and is_disabled(self):
            return plainly(self, args, kwargs)
        if kwargs or not self._plain:
            return self._call(args, kwargs)
        key: list[Any] = []
        for a in args:
            if type(a) is not np.ndarray:
                return self._call(args, {})
            key += (a.dtype, a.shape, a.flags.num)
        exact = self._exact.get(tuple(key))
        done = _MISSED if exact is None else self._run(exact, args, args, False, None)
        if done is _MISSED:
            return self._call(args, {})
        if exact.is_due():  # type: ignore[union-attr]
            self._learn(exact, args, kwargs, args, False, False)  # type: ignore[arg-type]
        return done

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any], method: bool = False) -> Any:
        """Any call: by its key where such a call was served before, else the long way."""
        key: list[Any] = []
        inputs: list[Any] = []
        originals: list[Any] = []
        receiver = None if self._plain and not method else self._receiver(args, method)
        try:
            if kwargs or receiver is not None or self._has_static:
                wrapped = self._add(args, kwargs, receiver, key, inputs, originals)
            else:
                wrapped = call_key.add(args, key, inputs, originals)
        except (TypeError, OverflowError, RecursionError):  # no such call can be served: the long way tells why
            return self._programs.find(self._binder.bind(args, kwargs, receiver)).run()
        parts = tuple(key)
        exact = self._exact.get(parts)
        done = _MISSED if exact is None else self._run(exact, inputs, originals, wrapped, receiver)
        if done is not _MISSED:
            if (not method or self._binder.is_method) and exact.is_due():  # type: ignore[union-attr]
                self._learn(exact, args, kwargs, inputs, wrapped, receiver is not None)  # type: ignore[arg-type]
            return done
        call = self._binder.bind(args, kwargs, receiver)
        if self._found is None and (ready := self._ready(call)) is not None:
            return ready[0]
        found = self._programs.find(call)
        if not _is_same(inputs, originals, call):
            return found.run()
        self._remember(parts, call, found.compiled)
        done = found.run()
        if (not method or self._binder.is_method) and found.compiled.is_due_for_sizes():
            self._learn_sizes(found.compiled, args, kwargs, inputs, wrapped, receiver is not None)
        return done

    def _add(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], receiver: Any, key: list[Any], inputs: list[Any],
        originals: list[Any],
    ) -> bool:  # fmt: skip
        """``call_key.add`` for a call with keywords, static arguments or an object of its own."""
        if kwargs:
            args, kwargs = self._binder.canonical(args, kwargs)
            key += (len(args), *kwargs)
        first = 0
        if receiver is not None:
            first = 1
            key += ("self", type(receiver))
        nums, names = self._binder.static_nums, self._binder.static_names
        wrapped = False
        for place, value in (*enumerate(args[first:], first), *kwargs.items()):
            if place in nums or place in names:
                key.append(static_key(value))
            else:
                wrapped = call_key.add((value,), key, inputs, originals) or wrapped
        return wrapped

    def _run(
        self, exact: _Exact, inputs: Sequence[Any], originals: Sequence[Any], wrapped: bool, receiver: Any
    ) -> Any:  # fmt: skip
        """The result, or ``_MISSED`` where the program does not serve this call."""
        compiled = exact.compiled
        if exact.checked:
            late = compiled.late(receiver)
            if late is None:
                return _MISSED
            inputs, originals = (*inputs, *late.inputs), (*originals, *late.originals)
            wrapped = wrapped or late.wrapped
            if not compiled.guard(inputs):
                return _MISSED
        self._programs.use(compiled)
        return compiled.run(inputs, originals, wrapped)

    def _learn(
        self, exact: _Exact, args: tuple[Any, ...], kwargs: dict[str, Any], inputs: Sequence[Any], wrapped: bool,
        has_receiver: bool,
    ) -> None:  # fmt: skip
        """Have calls like this one, which was served just now, go the native way from now on."""
        if is_paused():
            exact.runs = 1  # the first call after the pause is due
            return
        known = self._entries(exact.compiled)
        if known is None:
            return
        spent = exact.entry if exact.entry is not None and exact.entry.is_spent else None
        if spent is not None:
            known.drop(spent)
        served = self._served(exact.compiled, args, kwargs, inputs, wrapped, has_receiver)
        exact.entry = known.learn(served, spent is not None)

    def _learn_sizes(
        self, compiled: Compiled, args: tuple[Any, ...], kwargs: dict[str, Any], inputs: Sequence[Any], wrapped: bool,
        has_receiver: bool,
    ) -> None:  # fmt: skip
        """The same for calls of other sizes."""
        known = None if is_paused() else self._entries(compiled)
        if known is None:
            return
        spent = [entry for entry in compiled.sized if entry.is_spent]
        for entry in spent:
            known.drop(entry)
        served = self._served(compiled, args, kwargs, inputs, wrapped, has_receiver)
        kept = [entry for entry in compiled.sized if entry not in spent and known.has(entry)]
        compiled.tried_sizes(known.learn_sizes(served, bool(spent)), kept)

    def _entries(self, compiled: Compiled) -> Shortcuts | None:
        """The entries of this function; None where none can be of the program."""
        return (self._shortcuts or self._begin_shortcuts()) if compiled.is_direct else None

    def _served(
        self, compiled: Compiled, args: tuple[Any, ...], kwargs: dict[str, Any], inputs: Sequence[Any], wrapped: bool,
        has_receiver: bool,
    ) -> Served:  # fmt: skip
        from tenferro.shortcuts import Served

        first: Sequence[int] = range(len(args))
        rest: dict[str, int] = {}
        if kwargs:
            named = {name: len(args) + k for k, name in enumerate(kwargs)}
            first, rest = self._binder.canonical(tuple(first), named)
        nums, names = self._binder.static_nums, self._binder.static_names
        order = [(k, place in nums or place in names) for place, k in (*enumerate(first), *rest.items())]
        receiver = order.pop(0)[0] if has_receiver else None
        return Served(args, kwargs, order, receiver, compiled, inputs, wrapped)

    def _begin_shortcuts(self) -> Shortcuts | None:
        """From now on calls are native ones where an entry serves them; None where there are no native calls."""
        from tenferro.shortcuts import Shortcuts

        programs = self._programs
        with programs.lock:
            if self._shortcuts is None:
                try:
                    made = Shortcuts()
                    made.begin(self, MethodType(JitFunction.__call__, self), BoundMethod, self._binder.is_method)
                except LoweringError:  # objects are laid out otherwise here
                    return None
                programs.shortcuts = self._shortcuts = made
                if self.when_native is not None:
                    self.when_native(made)
            return self._shortcuts

    def _receiver(self, args: tuple[Any, ...], method: bool) -> Any:
        """``self`` of a method whose object is no pytree, else None."""
        return args[0] if args and (method or self._binder.is_method) and _is_object(args[0]) else None

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any], method: bool = False) -> BoundCall:
        return self._binder.bind(args, kwargs, self._receiver(args, method))

    def _remember(self, parts: Hashable, call: BoundCall, compiled: Compiled) -> None:
        if len(self._exact) >= MAX_EXACT or self._evictions != self._programs.evictions:
            # A program that was dropped must not live on here.
            self._exact, self._evictions = {}, self._programs.evictions
            if self._shortcuts is not None:
                self._shortcuts.clear()
        checked = compiled.has_late or any(leaf.sort == "int" for leaf in call.dynamic)
        self._exact[parts] = _Exact(compiled, checked)

    # -- looking inside ----------------------------------------------------------------------------------------------

    def trace(self, /, *args: Any, **kwargs: Any) -> SemanticProgram:
        """The program that a call with these arguments runs, before any pass. Arrays may be ``ShapeDtypeStruct``."""
        return self._described(args, kwargs).compiled.program

    def lower(self, /, *args: Any, **kwargs: Any) -> Lowered:
        """The stages of that program: ``exec_program``, ``plan``, ``regions``, ``as_text(stage)``, ``memory()``."""
        return self._described(args, kwargs).lowered()

    def _described(self, args: tuple[Any, ...], kwargs: dict[str, Any], is_method: bool = False) -> Found:
        """The program of a call that does not run."""
        from tenferro.structs import some_arrays

        return self._programs.find(self._bind(*some_arrays(args, kwargs), is_method))

    def explain(self) -> Explanation:
        """For each trace: what was new, at which line, and what it cost."""
        return self._programs.explain()

    def cache_info(self) -> CacheInfo:
        """Programs kept, traces made, calls served, and the machine code behind them."""
        return self._programs.cache_info()

    def cache_clear(self) -> None:
        """Forget all programs and counts."""
        if self._shortcuts is not None:
            self._shortcuts.clear()
            self.__class__ = JitFunction
        self._shortcuts = None
        self.__dict__.pop("_made", None)
        self.__dict__.pop("_ready_calls", None)
        self._found, self._exact = None, {}

    # -- an object like a function -----------------------------------------------------------------------------------

    def _unwrapped(self) -> tuple[Callable[..., Any], Around | None]:
        return self.__wrapped__, self._around

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

    def _unwrapped(self) -> tuple[Callable[..., Any], Around | None]:
        return of_method(MethodType(self.__func__.__wrapped__, self.__self__), self.__func__._around)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if current_trace() is not None:
            return _inlined(self.__func__)(self.__self__, *args, **kwargs)
        if self.__func__._binder.is_method:
            return self.__func__(self.__self__, *args, **kwargs)
        if is_paused() and is_disabled(self.__func__):
            return plainly(self.__func__, (self.__self__, *args), kwargs)
        return self.__func__._call((self.__self__, *args), kwargs, method=True)

    def trace(self, /, *args: Any, **kwargs: Any) -> SemanticProgram:
        """As ``JitFunction.trace``."""
        return self.__func__._described((self.__self__, *args), kwargs, True).compiled.program

    def lower(self, /, *args: Any, **kwargs: Any) -> Lowered:
        """As ``JitFunction.lower``."""
        return self.__func__._described((self.__self__, *args), kwargs, True).lowered()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__func__, name)

    def __repr__(self) -> str:
        return f"<jit {self.__func__.__qualname__} of {self.__self__!r}>"


def _inlined(jitted: JitFunction) -> Callable[..., Any]:
    """A jitted function inside a trace is part of it, and what it reads from outside is read as the outer one does."""
    from tenferro.tracer.substitution import substitute

    function = substitute(jitted.__wrapped__)
    return function if jitted._around is None else jitted._around(function)


def _is_same(inputs: Sequence[Any], originals: Sequence[Any], call: BoundCall) -> bool:
    """Whether these are the very inputs of the call: none had to be copied."""
    if len(inputs) != len(call.dynamic):
        return False
    for value, original, leaf in zip(inputs, originals, call.dynamic, strict=True):
        is_array = isinstance(original, np.ndarray | Array)
        if leaf.original is not original or (is_array and leaf.value is not value):
            return False
    return True


def _is_object(value: Any) -> bool:
    """Whether ``self`` is neither an array nor a number nor a pytree: then its parts are captures."""
    if isinstance(value, np.ndarray | np.generic | Array | int | float | complex | str):
        return False
    return value is not None and container(type(value)) is None


@overload
def jit(
    f: Callable[..., Any],
    *,
    static_argnums: Argnums = ...,
    static_argnames: Argnames = ...,
    donate_argnums: Argnums = ...,
    donate_argnames: Argnames = ...,
    max_compiles: int | None = ...,
    engine: Engine | str | None = ...,
    engines: Sequence[Engine | str] | None = ...,
) -> JitFunction: ...


@overload
def jit(
    f: None = None,
    *,
    static_argnums: Argnums = ...,
    static_argnames: Argnames = ...,
    donate_argnums: Argnums = ...,
    donate_argnames: Argnames = ...,
    max_compiles: int | None = ...,
    engine: Engine | str | None = ...,
    engines: Sequence[Engine | str] | None = ...,
) -> Callable[[Callable[..., Any]], JitFunction]: ...


def jit(
    f: Callable[..., Any] | None = None,
    *,
    static_argnums: Argnums = (),
    static_argnames: Argnames = (),
    donate_argnums: Argnums = (),
    donate_argnames: Argnames = (),
    max_compiles: int | None = None,
    engine: Engine | str | None = None,
    engines: Sequence[Engine | str] | None = None,
) -> Any:
    """Compile a function of arrays: traced at the first call, compiled, and run as machine code from then on.

    f: any function of arrays, numbers and pytrees of them; without it ``jit(...)`` is a decorator. Methods work.
    static_argnums, static_argnames: arguments taken by value, which must be hashable; each value is a program.
    donate_argnums, donate_argnames: array arguments that the call may use up. One that the function writes is written
    in place; the memory of one that it only reads becomes a result's of the same shape and dtype, which is then the
    very array that was given. An error leaves them as they were. ``f.lower(*args).donations()`` says what becomes of
    each.
    max_compiles: raise RecompileError instead of tracing more often than this.
    engine: where the function runs, by name or itself; by default where its tn.Array arguments are, else on the first
    engine. engines: several that it may use, the preferred one first; ``with tn.on(engine):`` inside the function puts
    operations on one. Results do not depend on it.

    One program serves every size; branches on sizes and on captured numbers are guards (``f.explain()``)."""
    _check_max_compiles(max_compiles)

    names: tuple[str, ...] = ()
    if engine is not None and engines is not None:
        raise ValueError(f"jit: engine and engines are both given; one of them is needed{at(user_line())}")
    if engine is not None:
        names = (engine_name("jit", engine),)
    elif engines is not None:
        names = engine_names("jit", engines)

    def decorate(function: Callable[..., Any]) -> JitFunction:
        check_function(function, "jit: f")
        inner, around = unwrapped(function) if isinstance(function, Transformed | BoundMethod) else (function, None)
        of = inner if isinstance(function, BoundMethod) else function
        binder = Binder(of, static_argnums, static_argnames, donate_argnums, donate_argnames)
        made = JitFunction(inner, binder, max_compiles, engines=names, around=around)
        made.__name__ = getattr(function, "__name__", made.__name__)
        return made

    return decorate if f is None else decorate(f)


def _check_max_compiles(value: Any) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"jit: max_compiles is {value!r}; an int, or None, is needed{at(user_line())}")
    if value < 1:
        raise ValueError(f"jit: max_compiles is {value}; at least 1, or None, is needed{at(user_line())}")
