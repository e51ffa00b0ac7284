"""``tn.debug``: what a program does, seen while it runs: ``print``, ``callback``, ``breakpoint``, ``nans``; and
``tn.check``.

All work inside jitted functions and every transformation, and at once outside. They happen when the program runs, in
its order, once each; derivatives leave them to the primal computation.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenferro import tree
from tenferro.callbacks import emit, is_array, key_of, opened_arguments
from tenferro.nans import nans as nans
from tenferro.tracer.errors import FailedCheckError
from tenferro.tracer.lines import SourceLine, at, user_frame, user_line
from tenferro.tracer.op import Op
from tenferro.tracer.ops import host
from tenferro.tracer.signature import function_name
from tenferro.tracer.trace import current_trace

Function = Callable[..., Any]
_builtin_print = builtins.print


def callback(callback: Function, *args: Any, ordered: bool = True, **kwargs: Any) -> None:
    """``callback(*args, **kwargs)`` when the program runs: arrays are NumPy's, read-only, and NumPy scalars for rank 0;
    what it returns is dropped.

    Calls keep the program's order, which ``ordered=False`` does not ask for. Under ``vmap`` there is one for each lane,
    in order; derivatives, and what ``tn.checkpoint`` computes again, call nothing again."""
    del ordered
    if not callable(callback):
        raise TypeError(f"debug.callback: a {type(callback).__name__}; a function is needed{at(user_line())}")
    _run(host.debug_callback, f"debug.callback({function_name(callback)})", callback, callback, args, kwargs)


def print(fmt: str, *args: Any, ordered: bool = True, **kwargs: Any) -> None:
    """``print(fmt.format(*args, **kwargs))`` when the program runs; once for each lane under ``vmap``.

    fmt: a text for ``str.format``. TypeError where it is none, ValueError or IndexError for fields that no argument
    fills, at once."""
    del ordered
    if not isinstance(fmt, str):
        raise TypeError(f"debug.print: fmt is a {type(fmt).__name__}; a text is needed{at(user_line())}")
    _check_fields(fmt, args, kwargs, "debug.print")
    pythons = [_is_pythons(x) for x in tree.leaves((args, kwargs))]

    def show(*args: Any, **kwargs: Any) -> None:
        leaves, treedef = tree.flatten((args, kwargs))
        given = [x.item() if own and isinstance(x, np.generic) else x for x, own in zip(leaves, pythons, strict=True)]
        args, kwargs = tree.unflatten(treedef, given)
        _builtin_print(_filled(fmt, args, kwargs))

    _run(host.debug_callback, "debug.print", show, _builtin_print, args, kwargs, fmt)


def _filled(fmt: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    try:
        return fmt.format(*args, **kwargs)
    except TypeError as error:
        if "ndarray.__format__" not in str(error):
            raise
        raise TypeError(
            f"debug.print: {fmt!r} has a format for an array; a field without one, of numpy.round(x, 2), shows it"
        ) from None


def _is_pythons(x: Any) -> bool:
    """Whether NumPy code holds one of Python's numbers there: a size, an int or a float argument."""
    return isinstance(x, int | float | complex) and not isinstance(x, np.generic)


def _check_fields(fmt: str, args: Sequence[Any], kwargs: dict[str, Any], name: str) -> None:
    """Refuse a text with fields that nothing fills, and arguments that no field shows."""
    used = _fields(fmt)
    missing = [f for f in sorted(used) if (int(f) >= len(args) if f.isdigit() else f not in kwargs)]
    if missing:
        raise ValueError(f"{name}: {fmt!r} has the field {missing[0]!r}, which no argument fills{at(user_line())}")
    unused = [k for k in (*map(str, range(len(args))), *kwargs) if k not in used]
    if unused:
        what = f"args[{unused[0]}]" if unused[0].isdigit() else unused[0]
        raise ValueError(f"{name}: {fmt!r} has no field for {what}; one for each argument is needed{at(user_line())}")


def _fields(fmt: str) -> set[str]:
    """The names and numbers of the fields of a text, and of those in their formats."""
    import string

    used: set[str] = set()
    left, automatic = [fmt], 0
    while left:
        for _, field, spec, _ in string.Formatter().parse(left.pop()):
            if field is None:
                continue
            first = field.partition(".")[0].partition("[")[0]
            if first == "":
                first, automatic = str(automatic), automatic + 1
            used.add(first)
            left.append(spec or "")
    return used


def _run(
    op: Op, name: str, function: Function, identity: Any, args: Sequence[Any], kwargs: dict[str, Any], *more: Any,
    sees_lanes: bool = False,
) -> None:  # fmt: skip
    """Record a call, or call at once. ``identity``, ``more``: what tells this call from others of the arguments."""
    trace = current_trace()
    if trace is None:
        _at_once(name, function, args, kwargs, sees_lanes)
        return
    from tenferro.tracer.substitution import outside

    given = opened_arguments(trace, args, kwargs, name)
    if identity is function:
        function = identity = outside(function)

    def run(*arrays: Any, **lane: Any) -> tuple[Any, ...]:
        positional, named = given.close(arrays)
        function(*positional, **named, **lane)
        return ()

    call = host.HostCall(name, run, key_of(name, identity, given, identity, *more), sees_lanes)
    emit(trace, op, call, given)


def _at_once(name: str, function: Function, args: Sequence[Any], kwargs: dict[str, Any], sees_lanes: bool) -> None:
    values, treedef = tree.flatten((tuple(args), kwargs))
    places = [k for k, x in enumerate(values) if is_array(x)]

    def run(*arrays: Any, **lane: Any) -> tuple[Any, ...]:
        mine = list(values)
        for place, x in zip(places, arrays, strict=True):
            mine[place] = x
        positional, named = tree.unflatten(treedef, mine)
        function(*positional, **named, **lane)
        return ()

    arrays = [np.asarray(values[k]) for k in places]
    line = user_line()
    try:
        host.called(arrays, host.HostCall(name, run, sees_lanes=sees_lanes), (), (), ())
    except Exception as error:
        if not isinstance(error, FailedCheckError):
            error.add_note(f"{name}: called{at(line)}")
        raise


def breakpoint(*values: Any, **named: Any) -> None:
    """Stop in the debugger when the program runs here, with the values in its namespace.

    The debugger is the one that ``sys.breakpointhook`` calls, as for Python's ``breakpoint()``, from a frame that bears
    the user's file and line. Its variables are those of the values that are variables where this is called, by their
    names, what is given by keyword, ``values`` with all that come by place, and ``line``, the file and line."""
    line, frame = user_line(), user_frame()
    known = {} if frame is None else dict(frame.f_locals)
    names = tuple([next((n for n, x in known.items() if x is v), "") for v in values])

    def stop(*values: Any, **named: Any) -> None:
        variables = {n: v for n, v in zip(names, values, strict=True) if n}
        _stop({**variables, **named, "values": values, "line": str(line)}, line)

    _run(host.debug_callback, "debug.breakpoint", stop, sys, values, named, line, names)


def _stop(namespace: dict[str, Any], line: SourceLine | None) -> None:
    """Call the hook from a frame at the user's line."""
    file, number = (line.file, line.line) if line is not None else ("<tn.debug.breakpoint>", 1)
    code = compile("\n" * (number - 1) + "__stop__()", file, "exec")
    exec(code, {"__name__": "__breakpoint__", **namespace, "__stop__": sys.breakpointhook})


def check(condition: Any, message: str, *args: Any, **kwargs: Any) -> None:
    """FailedCheckError with ``message.format(*args, **kwargs)`` and the user's line unless the condition holds when the
    program runs: all elements of it, and under ``vmap`` in all lanes; the first lane where it does not is named.

    Checks are never dropped, and keep the program's order."""
    if not isinstance(message, str):
        raise TypeError(f"check: message is a {type(message).__name__}; a text is needed{at(user_line())}")
    _check_fields(message, args, kwargs, "check")
    line = user_line()

    def holds(condition: Any, *args: Any, lane: tuple[int, ...] = (), **kwargs: Any) -> None:
        if np.all(condition):
            return
        text = message.format(*args, **kwargs)
        if lane:
            text += f"; in lane {lane[0] if len(lane) == 1 else lane}"
        raise FailedCheckError(f"check: {text}{at(line)}")

    if not is_array(condition):
        condition = np.asarray(condition)
    _run(host.check, "check", holds, FailedCheckError, (condition, *args), kwargs, message, line, sees_lanes=True)


__all__ = ["breakpoint", "callback", "nans", "print"]
