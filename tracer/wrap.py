"""NumPy's creation functions while a trace runs, since they take no part in dispatch.

In: nothing; ``wrapped()`` is held while a function is traced. Out: ``numpy.zeros(n)`` and its kin make variables of the
trace, and ``numpy.random`` refuses to freeze its numbers. Only user code in the tracing thread is served: NumPy's own
code, this package and other threads get NumPy's functions.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache, wraps
from types import ModuleType
from typing import Any

import numpy as np

from tenferro.tracer.api.grids import Grid
from tenferro.tracer.api.record import API, ApiFunction
from tenferro.tracer.api.registry import BY_NUMPY
from tenferro.tracer.callee import calls
from tenferro.tracer.config import config
from tenferro.tracer.dim import Dim
from tenferro.tracer.dispatch import concretely
from tenferro.tracer.errors import TraceError
from tenferro.tracer.foreign import NUMPY_ERRORS, as_own
from tenferro.tracer.forking import Renewed, in_child
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.trace import current_trace, is_supported, is_tenferro_array
from tenferro.tracer.traced import TracedArray, from_known

CREATION = (
    "zeros", "ones", "empty", "full", "arange", "linspace", "eye", "identity", "tri", "indices", "diag_indices",
    "hanning", "hamming", "blackman", "bartlett", "kaiser",
)  # fmt: skip
CONVERSION = ("array", "asarray", "asanyarray", "ascontiguousarray")
# These take an array and so take part in dispatch, unless the array is one from outside.
FROM_OUTSIDE = ("zeros_like", "ones_like", "empty_like", "full_like", "copy")
GRIDS = ("mgrid", "ogrid")
_NOT_RANDOM = frozenset({"test", "get_state", "set_state", "seed"})

_held = Renewed(threading.RLock)
_running = 0
_originals: list[tuple[ModuleType, dict[str, Any]]] = []


def _serves(depth: int, name: str, wrapper: Any) -> bool:
    """Whether the caller is user code in a thread that traces; compiled code called by it must get ndarrays."""
    if current_trace() is None:
        return False
    frame = sys._getframe(depth)
    module = frame.f_globals.get("__name__", "")
    return not module.startswith(("numpy.", "tenferro.")) and calls(frame, name, wrapper)


def _holds(x: Any, of: Callable[[Any], bool]) -> bool:
    if type(x) in (tuple, list):
        return any(_holds(i, of) for i in x)
    return of(x)


def _is_symbolic(x: Any) -> bool:
    return type(x) is Dim or type(x) is TracedArray


def _is_outside(x: Any) -> bool:
    return isinstance(x, np.ndarray) or is_tenferro_array(x)


def _creating(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """Creation: a known cell from numbers, an operation of the program from Dims."""

    @wraps(original)
    def create(*args: Any, **kwargs: Any) -> Any:
        if not _serves(2, name, create):
            return original(*args, **kwargs)
        symbolic = any(_holds(x, _is_symbolic) for x in (*args, *kwargs.values()))
        if symbolic or name in ("zeros", "ones", "full", "empty"):
            try:
                return API[name].function(*args, **kwargs)
            except TraceError as error:
                return concretely(API[name], args, kwargs, error)
        return _known(name, original, args, kwargs)

    return create


def of_numpy(function: Any) -> Callable[..., Any] | None:
    """What is called where a function of NumPy's is traced itself (``jit(numpy.sum)``), None for any other: there is no
    user's code around it. Lists of arguments, which NumPy would look into, and sizes go to the API."""
    record = _by_identity().get(id(function))
    if record is None:
        return None
    is_dispatched = isinstance(function, np.ufunc) or hasattr(function, "_implementation")
    is_dispatched = is_dispatched and record.name not in (*CREATION, *CONVERSION)

    @wraps(record.function)
    def call(*args: Any, **kwargs: Any) -> Any:
        has_lists = any(type(x) in (list, tuple) for x in (*args, *kwargs.values()))
        return function(*args, **kwargs) if is_dispatched and not has_lists else record.function(*args, **kwargs)

    return call


@cache
def _by_identity() -> dict[int, ApiFunction]:
    """Functions live as long as NumPy, and an object's own hash is not asked for."""
    return {id(function): record for function, record in BY_NUMPY.items()}


def _known(name: str, original: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """What NumPy makes at once, as known cells."""
    try:
        made = original(*args, **kwargs)
    except NUMPY_ERRORS as error:
        raise as_own(name, error) from None
    return _as_cells(made)


def _as_cells(made: Any) -> Any:
    trace = current_trace()
    assert trace is not None
    if isinstance(made, tuple):
        return tuple(_as_cells(i) for i in made)
    # An array of strings or objects is nothing to the program; it may still serve the function itself.
    return from_known(trace, made) if isinstance(made, np.ndarray) and is_supported(made.dtype) else made


def _converting(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """Conversion: what holds no traced value, Dim or outside array is NumPy's, at once. ``asarray`` of an outside
    array that needs no conversion is that array, as in NumPy."""

    @wraps(original)
    def convert(*args: Any, **kwargs: Any) -> Any:
        if not _serves(2, name, convert):
            return original(*args, **kwargs)
        first = args[0] if args else kwargs.get("a", kwargs.get("object"))
        if _holds(first, _is_symbolic):
            return API[name].function(*args, **kwargs)
        if not _holds(first, _is_outside):
            return _known(name, original, args, kwargs)
        if name in ("asarray", "asanyarray", "ascontiguousarray") and isinstance(first, np.ndarray):
            made = original(*args, **kwargs)
            if made is first:
                return made
        return API[name].function(*args, **kwargs)

    return convert


_BY_KEY = {
    **dict.fromkeys(("rand", "random", "random_sample", "ranf", "sample"), "uniform"),
    **dict.fromkeys(("randn", "standard_normal"), "normal"),
    **dict.fromkeys(("integers", "random_integers"), "randint"),
    **dict.fromkeys(("seed", "default_rng", "RandomState", "Generator"), "key"),
    "bytes": "bits", "standard_cauchy": "cauchy", "standard_exponential": "exponential",
    "standard_gamma": "gamma", "standard_t": "t", "weibull": "weibull_min",
    **{name: name for name in (
        "beta", "binomial", "chisquare", "choice", "dirichlet", "exponential", "f", "gamma", "geometric", "gumbel",
        "laplace", "logistic", "lognormal", "multinomial", "multivariate_normal", "normal", "pareto", "permutation",
        "poisson", "randint", "rayleigh", "shuffle", "triangular", "uniform", "wald",
    )},
}  # fmt: skip
"""NumPy's name → that of the like in ``tenferro.random``."""


def _frozen(name: str) -> Callable[..., Any]:
    nearest = f"tenferro.random{f'.{_BY_KEY[name]}' if _BY_KEY.get(name) else ''}"

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise TraceError(
            f"numpy.random.{name}: inside a traced function its numbers would be drawn once and frozen; {nearest} "
            f"makes numbers of a key, or draw outside and pass the numbers as an argument{at(user_line())}"
        )

    return refuse


def _randomness(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    refuse = _frozen(name)

    @wraps(original)
    def draw(*args: Any, **kwargs: Any) -> Any:
        return refuse() if current_trace() is not None else original(*args, **kwargs)

    return draw


class _Refusing(type):
    """The class of the stand-ins for ``RandomState`` and ``Generator``: instances and subclasses are the originals'."""

    original: type

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return _frozen(cls.__name__)() if current_trace() is not None else cls.original(*args, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.original)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls.original)


def _random_class(original: type) -> type:
    stand_in = _Refusing(original.__name__, (original,), {"__doc__": original.__doc__})
    stand_in.original = original
    return stand_in


def _random_functions() -> Iterator[str]:
    for name in np.random.__all__:
        if name not in _NOT_RANDOM and not isinstance(getattr(np.random, name), type | ModuleType):
            yield name


@cache
def _stand_in(module: ModuleType, name: str, original: Any) -> Any:
    """What a trace has in place of ``original``; made once, for every trace installs it."""
    if name in GRIDS:
        return Grid(original)
    if module is np:
        return (_creating if name in CREATION else _converting)(name, original)
    return _random_class(original) if isinstance(original, type) else _randomness(name, original)


@cache
def _replaced() -> tuple[tuple[ModuleType, tuple[str, ...]], ...]:
    names = (*CREATION, *CONVERSION, *FROM_OUTSIDE, *GRIDS)
    return (np, names), (np.random, (*_random_functions(), "RandomState", "Generator"))


def _install() -> None:
    for module, names in _replaced():
        present = tuple(map(vars(module).get, names))
        _originals.append((module, dict(zip(names, present, strict=True))))
        # One update of the module's dict: as many calls of setattr take 30 µs, a tenth of a small function's trace.
        vars(module).update(_stand_ins(module, names, tuple(map(id, present))))


@lru_cache(maxsize=8)
def _stand_ins(module: ModuleType, names: tuple[str, ...], present: tuple[int, ...]) -> dict[str, Any]:
    """What a trace has in place of what stands there, whose ids are ``present``."""
    return {name: _stand_in(module, name, vars(module)[name]) for name in names}


def _restore() -> None:
    while _originals:
        module, originals = _originals.pop()
        vars(module).update(originals)


@in_child
def _after_fork() -> None:
    """The child has this thread's traces alone; those of others will not end there."""
    global _running
    if _running and current_trace() is None:
        _restore()
        _running = 0


@contextmanager
def wrapped() -> Iterator[None]:
    """Hold NumPy's creation functions wrapped; traces in several threads share one wrapping, the last one ends it."""
    global _running
    if not config().wrap_numpy:
        yield
        return
    with _held.lock:
        if _running == 0:
            _install()
        _running += 1
    try:
        yield
    finally:
        with _held.lock:
            _running -= 1
            if _running == 0:
                _restore()
