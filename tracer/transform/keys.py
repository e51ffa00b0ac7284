"""Keys of what a function recorded: a recording in, a key out that is equal for equal recordings.

A derivative is determined by what the function recorded: where that was met before, it need not be taken again.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from tenferro.tracer.bodies import bodies_of
from tenferro.tracer.op import Control
from tenferro.tracer.ops.lanes import ACROSS
from tenferro.tracer.ops.pointwise import copy
from tenferro.tracer.program import Literal, Operand, Operation, Value
from tenferro.tracer.trace import NO_PARAMS, Trace, is_tenferro_array
from tenferro.tracer.transform.gradients import Recorded
from tenferro.tracer.transform.inputs import Opened
from tenferro.tracer.transform.marks import MARKS, PLAIN, has_rules

MAX_OPERATIONS = 2000
"""Beyond them the derivative itself is what costs."""


def key_of(recorded: Recorded, settings: Hashable) -> Hashable | None:
    """The key of a recorded function, and of all that is in its trace; None where there may be more to it."""
    key = key_of_trace(recorded.trace, (recorded.arguments, recorded.results))
    return None if key is None or recorded.aux is not None else (settings, key)


def key_of_trace(trace: Trace, trees: Sequence[Opened], taken: Sequence[Operation] = ()) -> Hashable | None:
    """The key of all that is in a trace, of operations that were taken out of it, and of pytrees of its values. Lines
    count, as what they are: a program that is kept holds its own. None where rules of the user's own, which may do
    another thing each time, and what is no number take part."""
    operations = (*trace.operations, *taken)
    if trace.spread is not None or len(operations) > MAX_OPERATIONS:
        return None
    key: list[Any] = [len(taken)]
    for o in operations:
        if o.op in MARKS and o.op not in PLAIN or type(o.op.form) is Control and has_rules(o.params):
            return None
        if (
            o.op in ACROSS or type(o.op.form) is Control and any(b.across for b in bodies_of(o))
        ):  # their mapping has a number of its own each time
            return None
        key += (o.op, 0 if o.op is copy else id(o.line), o.place, len(o.inputs))  # copies stand at the call's line
        if o.params is not NO_PARAMS:
            key.append(o.params)
        key += map(operand_key, o.inputs)
        key.append(o.outputs[0].id)
    for declared in trace.late:
        type_ = declared.value.type
        key += (declared.kind, type_.dtype, len(type_.shape) if declared.kind == "captured" else type_.shape)
    key += [is_tenferro_array(array) for _, array in trace.captured.values()]
    key += [(g.relation, g.lhs, g.rhs, g.holds) for g in trace.guards]
    for tree in trees:
        mine = _of_tree(tree)
        if mine is None:
            return None
        key += mine
    return tuple(key)


def operand_key(x: Operand) -> Hashable:
    """A value by its number, a literal by value and dtype where Python's equality tells values apart; else itself."""
    if type(x) is Value:
        return x.id
    if type(x) is Literal and type(x.value) is float and x.value and x.value == x.value:
        return (x.value, x.dtype.char)
    return x


def _of_tree(tree: Opened) -> list[Any] | None:
    """What a pytree of the function is; None where something in it is no number."""
    if len(tree.places) != len(tree.values):
        return None
    found: list[Any] = [tree.treedef]
    for leaf in tree.leaves:
        found += (leaf.weak, leaf.scalar, operand_key(leaf.operand))
    return found
