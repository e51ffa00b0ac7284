"""Errors about a traced value used where only a concrete one will do: the question in, the cure out.

NumPy asks a foreign object for its elements in the same way whatever the user wrote, so the user's own instruction
tells the cases apart.
"""

from __future__ import annotations

import dis
import functools
import gc
import sys
from types import FrameType
from typing import TYPE_CHECKING

import numpy as np

from tenferro.tracer import cures
from tenferro.tracer.asking import instruction, question
from tenferro.tracer.errors import CheckError, DtypeError, LeakError, MutationError, TraceError, noted
from tenferro.tracer.lines import at, is_users, user_frame, user_line

if TYPE_CHECKING:
    from tenferro.tracer.cells import Cell
    from tenferro.tracer.traced import TracedArray

_CURES = {
    "bool": "numpy.where(condition, a, b) chooses by a traced condition",
    "int": "keep it an array, or return it and convert outside",
    "float": "keep it an array (numpy functions instead of math), or return it and convert outside",
    "format": cures.FORMAT,
    "str": "return it and make a text of it outside",
    "repr": "return it and make a text of it outside",
    "hash": "a key must be known: an int argument, or one named in static_argnames, is",
    "complex": "keep it an array, or return it and convert outside",
    "item": "keep it an array of rank 0, or return it and convert outside",
    "tolist": "return the array and convert outside",
    "tobytes": "return the array and convert outside",
    "in": "numpy.any(x == value) asks the same of a traced array",
    "index": "tenferro.numpy.asarray(a)[i] indexes by a traced value, sizes come from x.shape or int arguments",
}


_REMEMBERING = type(functools.lru_cache(lambda: None))


def concrete(asked: str) -> TraceError | MutationError:
    """Python asked for a number of a traced value; NumPy does so too when it stores one element."""
    if _user_instruction() == "store":
        return untraced_use()
    q = question()
    cure = None
    if q is not None and asked == "bool":
        cure = cures.truth(q)
    elif q is not None and asked in ("int", "float", "complex", "hash"):
        cure = cures.number(q, asked)
    elif q is not None and asked == "in" and q.kind == "in":
        cure = cures.truth(q)
    return _answered(cure or cures.Cure(asked, _CURES[asked]))


def _answered(cure: cures.Cure) -> TraceError:
    return TraceError(f"{cure.head}: {cure.found}; {cure.needed}{at(user_line())}")


def index() -> TraceError | MutationError:
    """Python or NumPy asked for an index."""
    if _user_instruction() == "subscript":
        return untraced_use()
    q = question()
    cure = cures.number(q, "index") if q is not None else None
    return _answered(cure or cures.Cure("index", _CURES["index"]))


def untraced_use() -> TraceError | MutationError:
    """NumPy asked for the elements of a traced array."""
    if _joins_by_index():
        return TraceError(
            "numpy.r_ and numpy.c_: of traced values, which have no elements yet; numpy.concatenate([a, b]) or "
            f"numpy.stack([a, b], axis=-1) joins them{at(user_line())}"
        )
    match _user_instruction():
        case "subscript":
            return TraceError(
                "indexing: an untraced array is indexed by a traced value; tenferro.numpy.asarray(a)[i] traces "
                f"it{at(user_line())}"
            )
        case "store":
            return noted(
                MutationError(
                    "write: a traced value goes into an array made outside the trace; write into a traced array, such "
                    f"as numpy.zeros(shape) or x.copy() made in the function{at(user_line())}"
                )
            )
        case _:
            q = question()
            cure = cures.elements(q) if q is not None else None
            if cure is not None:
                return _answered(cure)
            return TraceError(
                "numpy.asarray: of a traced value, which has no elements yet; numpy.stack([a, b]) joins traced values, "
                "x.astype(dtype) converts one, tenferro.numpy has functions that take lists and captured "
                f"arrays{at(user_line())}"
            )


def _joins_by_index() -> bool:
    """Whether ``numpy.r_[...]`` or ``numpy.c_[...]`` is what runs."""
    frame: FrameType | None = sys._getframe(1)
    last = user_frame()
    while frame is not None and frame is not last:
        if frame.f_code.co_name == "__getitem__" and isinstance(frame.f_locals.get("self"), type(np.r_).__mro__[1]):
            return True
        frame = frame.f_back
    return False


_LOOKING_ON = frozenset({"bdb", "pdb", "pprint", "reprlib", "traceback", "logging"})


def is_asked_by_user() -> bool:
    """Whether the function's own code, not a debugger's or this package's, called the caller of this."""
    frame = sys._getframe(2)
    return is_users(frame) and frame.f_globals.get("__name__") not in _LOOKING_ON


def is_store() -> bool:
    """Whether the user's own instruction writes into a subscript."""
    return _user_instruction() == "store"


def _user_instruction() -> str:
    """What the user's own code is doing: "subscript", "store" or "call"."""
    frame = user_frame()
    if frame is None:
        return "call"
    name, argument = instruction(frame)
    if name.startswith("STORE_SUBSCR") or name.startswith("STORE_SLICE"):
        return "store"
    if name.startswith(("BINARY_SUBSCR", "BINARY_SLICE")):
        return "subscript"
    # From Python 3.14 on a subscript is a BINARY_OP whose argument names it.
    if name.startswith("BINARY_OP") and "[]" in _binary_operator(argument):
        return "subscript"
    return "call"


def _binary_operator(argument: int) -> str:
    operators = getattr(dis, "_nb_ops", ())
    return str(operators[argument]) if argument < len(operators) else ""


def no_attribute(name: str) -> str:
    """Of an array's attribute that a traced value has not, and the way around."""
    message = f"ndarray.{name}: not available on a traced value"
    if name == "flat":
        return f"{message}; x.reshape(-1) has the same elements, x.reshape(-1)[i] = v writes one"
    if hasattr(np, name):
        return f"{message}; numpy.{name} may be, or return the array and call it outside"
    if hasattr(np.ndarray, name):
        return f"{message}; return the array and ask it outside"
    return message


COUNTS = "(number of counts)"
"""How error texts call the extent of ``bincount``."""


def uncompared(comparison: str) -> str:
    """The way around a comparison of sizes, one of which is known only when the program runs."""
    if COUNTS in comparison:
        return "numpy.bincount(x, minlength=k)[:k] has k of them, which is known before"
    return (
        "compare after the jitted function returns; arrays selected by one mask have one size, and numpy.where keeps "
        "that of the unselected array"
    )


def no_integer(x: object, needed: str = "an integer is needed", of_sizes: bool = False) -> str:
    """What was found where an integer must stand, and the way to one. ``of_sizes``: the integer is made of sizes."""
    dtype = getattr(x, "dtype", None)
    if type(x).__name__ == "TracedArray" and not getattr(x, "ndim", 0):
        if dtype is not None and dtype.kind in "iu":
            cure = "sizes come from x.shape or int arguments"
            return f"of a traced {dtype.name}, which is known only when the program runs; {needed}, {cure}"
        return f"of a traced {dtype}; {needed}{', a // b divides sizes' if of_sizes else ''}"
    if isinstance(dtype, np.dtype) and not isinstance(x, np.generic):
        found = f"of an array of {dtype}"
    else:
        found = f"{x!r} of class {type(x).__name__}"
    cure = "" if not isinstance(x, float) else ", a // b divides sizes" if of_sizes else ", int(x) rounds a number"
    return f"{found}; {needed}{cure}"


def not_own(cell: Cell) -> MutationError:
    """A write into memory that is not the running function's own."""
    scope, origin = cell.trace.scope, cell.origin
    if scope is not None and (scope is not cell.scope or cell.input is not None):
        found = f"an array from around the function under {scope.what}, which runs it once for many"
        needed = "return the new value from that function instead"
    elif cell.input is not None:
        found = f"{origin} is not the function's own"
        needed = f"write into {origin}.copy(), or donate the argument (donate_argnums)"
    else:
        name = str(origin).removeprefix("argument ")
        found = f"{origin} is not the function's own"
        needed = f"write into a copy of it, {name if name.isidentifier() else 'x'}.copy() makes one"
    return noted(MutationError(f"write: {found}; {needed}{at(user_line())}"))


def scalar_write(name: str) -> DtypeError:
    """A write into what NumPy gives as a scalar, which has no memory to write."""
    return DtypeError(
        f"{name}: a scalar, which cannot be written, as NumPy's cannot; an array is needed, numpy.array(x) makes "
        f"one{at(user_line())}"
    )


def refuse_sequences(name: str, args: tuple[object, ...], number: str = "a number that is no int") -> None:
    """Python's TypeError for an operator on a number and a sequence, which is no array yet."""
    for x in args:
        if type(x) in (list, tuple):
            raise DtypeError(
                f"{name}: {number} and a {type(x).__name__}; Python repeats by ints, "
                f"numpy.asarray of the {type(x).__name__} is an array{at(user_line())}"
            )


def leaked(x: TracedArray) -> LeakError:
    """A traced value used when its trace is over."""
    cell = x._cell
    made = str(cell.line) if cell.line is not None else "an unknown line"
    cache = _cache_of(x)
    cure = f"functools.lru_cache of {cache} keeps it; call it outside and pass the result" if cache else ""
    return LeakError(
        f"traced value {x.type}: used after the trace of {cell.trace.name} has ended; it was made at {made}; "
        f"{cure or 'return results instead of storing them'}{at(user_line())}"
    )


def _cache_of(x: object) -> str:
    """The function whose results Python keeps, where this is one of them: reached where no trace could see it."""
    holders = gc.get_referrers(x)
    for holder in [*holders, *(h for inner in holders if type(inner) is dict for h in gc.get_referrers(inner))]:
        if type(holder) is _REMEMBERING:
            return str(holder.__name__)
    return ""


def internal(text: str) -> CheckError:
    """A bug in tenferro."""
    return CheckError(f"{text}{at(user_line())}")
