"""Control flow as functions record it: Python functions and pytrees in, one operation with bodies out.

All run inside a trace. Bodies are run once, on values of their own; what they read from around them, arrays and sizes
alike, become operands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.bodies import Closing
from tenferro.tracer.derivation import Derivation
from tenferro.tracer.dims import Extent
from tenferro.tracer.errors import ShapeError, TraceError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import control
from tenferro.tracer.program import ArrayType, Operand, Value
from tenferro.tracer.substitution import bodies
from tenferro.tracer.trace import KINDS, Trace
from tenferro.tracer.traced import TracedArray, fresh
from tenferro.tracer.transform.branches import Part, emit_cond
from tenferro.tracer.transform.inputs import (
    Leaf,
    Opened,
    check_sizes,
    delivered,
    is_numeric,
    open_tree,
    results_of,
    type_text,
)
from tenferro.tracer.transform.loops import emit_scan
from tenferro.tracer.transform.recording import taken_out
from tenferro.tracer.tree import TreeDef

Function = Callable[..., Any]


def scan(
    trace: Trace, f: Function, init: Any, xs: Any, length: Extent | None, reverse: bool, name: str = "scan"
) -> tuple[Any, Any]:
    """``(carry, stacked)``; ``f(carry, x) → (carry, y)``."""
    with bodies(trace, f) as (body,):
        return _scan(trace, body, init, xs, length, reverse, name)


def _scan(
    trace: Trace, f: Function, init: Any, xs: Any, length: Extent | None, reverse: bool, name: str
) -> tuple[Any, Any]:
    initial = results_of(trace, init, f"{name}: init")
    walked = results_of(trace, xs, f"{name}: xs")
    length = _length(trace, walked, length, name)
    types = [leaf.type for leaf in initial.leaves]
    while True:
        with taken_out(trace, name) as recording:
            carry = [trace.placeholder(_plain(t)) for t in types]
            slices = [
                trace.placeholder(ArrayType(x.operand.type.dtype, x.operand.type.shape[1:])) for x in walked.leaves
            ]
            given = initial.close([_variable(trace, c, t) for c, t in zip(carry, types, strict=True)])
            one = walked.close([_variable(trace, s, s.type, f"a slice of the xs of {name}") for s in slices])
            new, stacked = pair_of(f(given, one), name)
            found = results_of(trace, new, f"{name}: the carry").in_order_of(initial.treedef)
            check_sizes([_counted_apart(x, name) for x in found.leaves], recording, f"{name}: the carry")
            wanted = _carried(trace, initial, types, found, name)
            outputs = [
                Derivation(trace).convert(leaf.operand, t.dtype)
                for leaf, t in zip(found.leaves, types, strict=True)
            ]  # fmt: skip
            ys = results_of(trace, stacked, f"{name}: what is stacked")
            check_sizes(ys.leaves, recording, f"{name}: what is stacked")
            results = [*outputs, *(y.operand for y in ys.leaves)]
        if wanted == types:
            break
        types = wanted
    b = Derivation(trace)
    begun = [b.convert(x.operand, t.dtype) for x, t in zip(initial.leaves, types, strict=True)]
    begun = [x if isinstance(x, Value) else build.copied(trace, x) for x in begun]
    made = emit_scan(
        trace, f"{name} {getattr(f, '__name__', 'f')}", recording, [*carry, *slices], results, begun,
        [x.operand for x in walked.leaves], [], length, reverse,
    )  # fmt: skip
    count = len(begun)
    last = initial.close([_result(trace, y, t) for y, t in zip(made, types, strict=False)])
    return last, ys.close([fresh(trace, y, scalar=False) for y in made[count:]])


def turns(trace: Trace, xs: Any, length: Extent | None, name: str) -> Extent:
    """How many turns a scan of these arrays has."""
    return _length(trace, results_of(trace, xs, f"{name}: xs"), length, name)


def while_loop(trace: Trace, condition: Function, body: Function, init: Any, name: str = "while_loop") -> Any:
    """The carry when ``condition(carry)`` no longer holds; ``body(carry) → carry``."""
    with bodies(trace, body, condition) as (turn, question):
        return _while_loop(trace, question, turn, init, name)


def _while_loop(trace: Trace, condition: Function, body: Function, init: Any, name: str) -> Any:
    initial = results_of(trace, init, f"{name}: init")
    if not initial.leaves:  # an operation is known by its first result
        while_loop(trace, lambda s: condition(s[0]), lambda s: (body(s[0]), s[1]), (init, True), name)
        return init
    types = [leaf.type for leaf in initial.leaves]
    while True:
        with taken_out(trace, name) as turn:
            carry = [trace.placeholder(_plain(t)) for t in types]
            given = initial.close([_variable(trace, c, t) for c, t in zip(carry, types, strict=True)])
            found = results_of(trace, body(given), f"{name}: the carry").in_order_of(initial.treedef)
            check_sizes([_counted_apart(x, name) for x in found.leaves], turn, f"{name}: the carry")
            wanted = _carried(trace, initial, types, found, name)
            outputs = [
                Derivation(trace).convert(leaf.operand, t.dtype)
                for leaf, t in zip(found.leaves, types, strict=True)
            ]  # fmt: skip
        if wanted == types:
            break
        types = wanted
    with taken_out(trace, name) as question:
        again = [trace.placeholder(_plain(t)) for t in types]
        asks = f"the value that the condition of {name} is asked of"
        given = initial.close([_variable(trace, c, t, asks) for c, t in zip(again, types, strict=True)])
        holds = _truth(trace, condition(given), f"{name}: the condition")
    closing = Closing(trace)
    closing.add(f"condition of {name}", again, question, [holds])
    closing.add(f"{name} {getattr(body, '__name__', 'body')}", carry, turn, outputs)
    asked, run = closing.bodies()
    b = Derivation(trace)
    begun = [b.convert(x.operand, t.dtype) for x, t in zip(initial.leaves, types, strict=True)]
    begun = [x if isinstance(x, Value) else build.copied(trace, x) for x in begun]
    made = trace.emit(
        control.while_,
        [*begun, *closing.operands()],
        condition=asked,
        body=run,
        carry=len(begun),
        shapes=(),
        lanes=0,
    )
    return initial.close([_result(trace, y, t) for y, t in zip(made, types, strict=True)])


def switch(trace: Trace, index: Operand, branches: Sequence[Function], operands: Sequence[Any], name: str) -> Any:
    """The results of the branch that an int64 chooses."""
    with bodies(trace, *branches) as found:
        return _switch(trace, index, found, operands, name)


def _switch(trace: Trace, index: Operand, branches: Sequence[Function], operands: Sequence[Any], name: str) -> Any:
    given = open_tree(trace, tuple(operands), f"{name}: the operands")
    wanted: tuple[TreeDef, list[np.dtype[Any]]] | None = None
    while True:
        found = [_branch(trace, f, given, wanted, name) for f in branches]
        first = found[-1 if name == "cond" else 0][1]  # cond's false_fun is branch 0
        each = [results.in_order_of(first.treedef) for _, results in found]
        dtypes = _common_dtypes(trace, each[::-1] if name == "cond" else each, name)
        if wanted is not None or all(
            results.treedef == first.treedef and leaf.operand.type.dtype == d
            for _, results in found
            for leaf, d in zip(results.leaves, dtypes, strict=True)
        ):
            break
        wanted = first.treedef, dtypes  # once more, with numbers as what they give way to
    made = emit_cond(trace, index, [part for part, _ in found], [], [leaf.operand.type.shape for leaf in first.leaves])
    return first.close([delivered(trace, y, leaf) for y, leaf in zip(made, first.leaves, strict=True)])


def _branch(
    trace: Trace, f: Function, given: Opened, wanted: tuple[TreeDef, Sequence[np.dtype[Any]]] | None, name: str
) -> tuple[Part, Opened]:
    """A branch that was recorded, its results in the order and converted to the dtypes that are wanted; and its results
    as they came, but for the order."""
    with taken_out(trace, name) as recording:
        variables = [leaf.variable(trace, leaf.operand, f"operand of {name}") for leaf in given.leaves]
        found = results_of(trace, f(*given.hand_on(variables)), f"{name}: the result of a branch")
        if wanted is not None:
            found = found.in_order_of(wanted[0])
        check_sizes(found.leaves, recording, f"{name}: the result of a branch")
        outputs = [leaf.operand for leaf in found.leaves]
        if wanted is not None:
            b = Derivation(trace)
            outputs = [b.convert(x, d) for x, d in zip(outputs, wanted[1], strict=True)]
    return Part(f"{name} {getattr(f, '__name__', 'branch')}", (), recording, tuple(outputs)), found


def _common_dtypes(trace: Trace, branches: Sequence[Opened], name: str) -> list[np.dtype[Any]]:
    """For each result the dtype that all branches give it, numbers giving way. ShapeError where they disagree."""
    first = branches[0]
    for other in branches[1:]:
        if other.treedef != first.treedef:
            raise ShapeError(
                f"{name}: branches return the structures {first.treedef} and {other.treedef}; one is "
                f"needed{at(user_line())}"
            )
    return [_common_dtype(trace, leaves, name) for leaves in zip(*(b.leaves for b in branches), strict=True)]


def _common_dtype(trace: Trace, leaves: Sequence[Leaf], name: str) -> np.dtype[Any]:
    firm = [leaf for leaf in leaves if not leaf.weak]
    numbers = max(leaves, key=lambda leaf: KINDS.index(leaf.operand.type.dtype.kind))  # floats before ints
    wanted = (firm[0] if firm else numbers).operand.type
    for leaf in leaves:
        mine = leaf.operand.type
        same = len(mine.shape) == len(wanted.shape) and all(
            trace.guard("==", a, n) for a, n in zip(mine.shape, wanted.shape, strict=True)
        )
        gives_way = leaf.weak and np.can_cast(mine.dtype, wanted.dtype, "same_kind")
        if not same or (mine.dtype != wanted.dtype and not gives_way):
            types = f"{type_text(trace, wanted)} and {type_text(trace, mine)}"
            raise ShapeError(f"{name}: branches return {types}{_where(leaf)}; one type is needed{at(user_line())}")
    return wanted.dtype


def _carried(trace: Trace, initial: Opened, types: list[ArrayType], found: Opened, name: str) -> list[ArrayType]:
    """The types that the carry must have: as it began, but for numbers that give way to what they become."""
    if found.treedef != initial.treedef:
        raise ShapeError(
            f"{name}: the carry begins with the structure {initial.treedef} and becomes {found.treedef}; one structure "
            f"is needed{at(user_line())}"
        )
    wanted = []
    for old, leaf in zip(types, found.leaves, strict=True):
        new = leaf.operand.type
        same = len(new.shape) == len(old.shape) and all(
            trace.guard("==", a, n) for a, n in zip(new.shape, old.shape, strict=True)
        )
        if same and new.dtype == old.dtype:
            wanted.append(old)
        elif same and leaf.weak and np.can_cast(new.dtype, old.dtype, "same_kind"):
            wanted.append(old)
        elif same and old.weak:
            wanted.append(ArrayType(new.dtype, old.shape, leaf.weak))
        else:
            where = _where(_counted_apart(leaf, name))
            raise ShapeError(
                f"{name}: the carry{where} begins as {type_text(trace, old)} and becomes {type_text(trace, new)}; one "
                f"type is needed, begin with that or convert{at(user_line())}"
            )
    return wanted


def _counted_apart(leaf: Leaf, name: str) -> Leaf:
    """The leaf with the path that users know: a fori_loop carries what it counts before the value."""
    return leaf if name != "fori_loop" else replace(leaf, path=leaf.path.partition("]")[2])


def _where(leaf: Leaf) -> str:
    return f" at {leaf.path}" if leaf.path else ""


def _plain(t: ArrayType) -> ArrayType:
    return ArrayType(t.dtype, t.shape)


def _variable(trace: Trace, value: Value, type_: ArrayType, origin: str | None = None) -> TracedArray:
    """What the body sees of a value: arrays, and numbers where the carry is one. The carry is the body's own, which it
    may write: what the loop began with stays. ``origin`` names what is not."""
    made = fresh(trace, value, scalar=not value.type.shape)
    made.type = ArrayType(type_.dtype, value.type.shape, type_.weak)
    made._cell.origin = origin
    return made


def _result(trace: Trace, value: Value, type_: ArrayType) -> TracedArray:
    return fresh(trace, value)


def pair_of(result: Any, name: str) -> tuple[Any, Any]:
    """What the function of a scan returned, which must be a pair."""
    if not isinstance(result, tuple) or len(result) != 2:
        raise TraceError(
            f"{name}: the function returned {_shown(result)}; a pair of the next carry and of what is stacked "
            f"(or None) is needed{at(user_line())}"
        )
    return result


def _shown(result: Any) -> str:
    if isinstance(result, tuple):
        return f"{len(result)} values"
    return "one value" if is_numeric(result) else f"a {type(result).__name__}"


def _truth(trace: Trace, x: Any, what: str) -> Operand:
    found = results_of(trace, x, what)
    if len(found.leaves) != 1 or found.leaves[0].operand.type.shape:
        raise ShapeError(f"{what}: {_types(trace, found)}; one bool is needed{at(user_line())}")
    value = found.leaves[0].operand
    return (
        value if value.type.dtype == np.bool_ else Derivation(trace).not_equal(value, Derivation(trace).like(0, value))
    )


def _types(trace: Trace, found: Opened) -> str:
    shown = " and ".join(type_text(trace, leaf.operand.type) for leaf in found.leaves)
    return shown or "nothing"


def _length(trace: Trace, walked: Opened, length: Extent | None, name: str) -> Extent:
    for leaf in walked.leaves:
        shape = leaf.operand.type.shape
        if not shape:
            raise ShapeError(
                f"{name}: xs{_where(leaf)} has rank 0; a leading axis to walk along is needed{at(user_line())}"
            )
        if length is None:
            length = shape[0]
        elif not trace.guard("==", length, shape[0]):
            raise ShapeError(
                f"{name}: xs{_where(leaf)} has {trace.describe(shape[0])} entries, {trace.describe(length)} are taken; "
                f"one number of turns is needed{at(user_line())}"
            )
    if length is None:
        raise ShapeError(
            f"{name}: neither xs nor length tells the number of turns; one of them is needed{at(user_line())}"
        )
    return length
