"""``assert_budget``: a function, the arguments of a call and bounds in; nothing out, or an error that says what is over
which bound, and why."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tenferro.guards import in_words
from tenferro.jit import BoundMethod, JitFunction, jit
from tenferro.lowered import Lowered
from tenferro.lowering.bodies import bodies_of, with_bodies
from tenferro.lowering.plan import Plan, Seam, Step, Stretch, kernel_name, lines_of
from tenferro.segments import at_lines
from tenferro.tracer.errors import TenferroError
from tenferro.tracer.lines import at, user_line

LISTED = 8
"""Causes that an error names of one bound."""
UNBOUNDED = 1 << 62
"""The count of what nobody knows before the run."""

Cause = tuple[int, Sequence[str]]
"""How many there are, and what they are."""


class BudgetError(TenferroError, AssertionError):
    """A call needs more of something than ``assert_budget`` allows."""


def assert_budget(
    f: Callable[..., Any] | Lowered,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    kernels: int | None = None,
    compiles: int | None = None,
    peak_bytes: int | None = None,
    seams: int | None = None,
    transfers: int | None = None,
) -> None:
    """Check what the call ``f(*args, **kwargs)`` needs: at most as much as is given, each bound with it.

    f: a jitted function or method; another function is jitted here. Or what ``f.lower(*args)`` returned.
    kernels: fused regions, copies and matrix products that run. compiles: traces of ``f`` until now, this one included.
    peak_bytes: ``memory().peak``. seams: calls of Python or NumPy between kernels, which ``as_text("segments")`` lists.
    transfers: between engines. Kernels and seams in the body of a loop or choice count once, however often it runs;
    those of all branches do.

    The program of the call is run once where kernels or seams are bounded; ``f`` returns nothing, and writes to no
    argument. Raises BudgetError, an AssertionError, with each bound that is broken, what is over it, and the user's
    lines."""
    bounds = {
        "kernels": kernels,
        "compiles": compiles,
        "peak_bytes": peak_bytes,
        "seams": seams,
        "transfers": transfers,
    }
    allowed = {name: _checked(name, bound) for name, bound in bounds.items() if bound is not None}
    if not allowed:
        raise TypeError(f"assert_budget: no bound is given; one of {', '.join(bounds)} is needed{at(user_line())}")
    lowered, function = _looked_into(f, args, kwargs or {}, "compiles" in allowed)
    broken = []
    for name, bound in allowed.items():
        found, causes = _CAUSES[name](lowered, function)
        if found > bound:
            # The first traces are within the bound: the others are to be explained.
            told = causes[bound:] if name == "compiles" else causes
            more = [f"and {len(told) - LISTED} more"] if len(told) > LISTED else []
            listed = "".join(f"\n    {cause}" for cause in (*told[:LISTED], *more))
            number = "no bound" if found == UNBOUNDED else found
            verb = "is" if bound == 1 else "are"
            broken.append(f"\n  {name}: {number} found; at most {bound} {verb} allowed{listed}")
    if broken:
        name = lowered.program.name
        raise BudgetError(f"assert_budget: {name} is over its budget{at(user_line())}{''.join(broken)}")


def _checked(name: str, bound: Any) -> int:
    try:
        number = operator.index(bound)
    except TypeError:
        number = None
    if number is None or isinstance(bound, bool):
        raise TypeError(f"assert_budget: {name} is {bound!r}; an int, or None, is needed{at(user_line())}")
    if number < 0:
        raise ValueError(f"assert_budget: {name} is {bound}; at least 0 is needed{at(user_line())}")
    return number


def _looked_into(
    f: Any, args: Sequence[Any], kwargs: Mapping[str, Any], counts_traces: bool
) -> tuple[Lowered, JitFunction | BoundMethod | None]:
    if isinstance(f, Lowered):
        if counts_traces:
            raise TypeError(
                f"assert_budget: compiles counts the traces of a function; the function is needed in place of what "
                f"lower() returned{at(user_line())}"
            )
        if len(args) or kwargs:
            raise TypeError(
                f"assert_budget: arguments beside what lower() returned, which has its own{at(user_line())}"
            )
        return f, None
    if not isinstance(args, tuple | list):
        found = type(args).__name__
        raise TypeError(f"assert_budget: args is of class {found}; a tuple of arguments is needed{at(user_line())}")
    function = f if isinstance(f, JitFunction | BoundMethod) else jit(f)
    return function.lower(*args, **kwargs), function


def _kernels(lowered: Lowered, _: object) -> Cause:
    found = [f"{kernel_name(step)}{at_lines(lines_of(step))}" for step in _launched(lowered)]
    return len(found), found


def _launched(lowered: Lowered) -> Iterator[Step]:
    for plan, stretch in _stretches(lowered):
        if not isinstance(stretch, Seam):
            # A loop in a segment is what its bodies are.
            yield from (plan.steps[n] for n in stretch.kernels if not bodies_of(plan.steps[n]))


def _stretches(lowered: Lowered) -> Iterator[tuple[Plan, Stretch]]:
    for number, stretches in lowered.stretches.items():
        plan = lowered.prepared.plans[number]
        assert plan is not None
        yield from with_bodies(plan, stretches)


def _compiles(_: Lowered, function: JitFunction | BoundMethod | None) -> Cause:
    assert function is not None
    traces = function.explain().traces
    return len(traces), [f"trace {t.number}: {t.reason}{at(t.line)}" for t in traces]


def _peak_bytes(lowered: Lowered, _: object) -> Cause:
    memory = lowered.memory()
    if memory.unbounded:
        return UNBOUNDED, list(memory.unbounded)
    if memory.engines:
        return memory.bytes, [f"{name}: {m.peak} in step {m.step} ({m.at})" for name, m in memory.engines.items()]
    head = f"{memory.formula}, in step {memory.step} ({memory.at})" if memory.at else memory.formula
    return memory.bytes, [head, *(str(b) for b in memory.largest if b.first <= memory.step <= _last(b.last))]


def _last(step: int | None) -> float:
    return float("inf") if step is None else step


def _seams(lowered: Lowered, _: object) -> Cause:
    found = [str(s) for _, s in _stretches(lowered) if isinstance(s, Seam)]
    return len(found), found


def _transfers(lowered: Lowered, _: object) -> Cause:
    found = [in_words(str(t), lowered.program) for t in lowered.schedule.transfers]
    return len(found), found


_CAUSES: dict[str, Callable[[Lowered, JitFunction | BoundMethod | None], Cause]] = {
    "kernels": _kernels,
    "compiles": _compiles,
    "peak_bytes": _peak_bytes,
    "seams": _seams,
    "transfers": _transfers,
}
