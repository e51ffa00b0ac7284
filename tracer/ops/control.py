"""Control rows: operations that run bodies.

``scan``: operands are the carry's initial values, arrays whose leading axis is walked along, and what the body reads
besides (values and sizes). The body takes carry, slices, and those; it gives the next carry and what is stacked.
``params``: ``body``, ``carry`` and ``walked`` (how many), ``length``, ``reverse``, ``shapes`` (of the stacked results).

``while``: operands are the carry's initial values and what both bodies read besides. ``params``: ``condition``,
``body``, ``carry``, ``lanes``, ``shapes``. The condition gives bools of rank ``lanes``, one for each lane of as many
leading axes: the loop turns as long as one of them holds, and where ``lanes`` is not 0 the body leaves those lanes as
they are that have stopped. Results beyond the carry are stacked, one entry a turn: ``shapes`` are theirs, and the first
extent of each is the number of turns, known when the loop has run.

``cond``: the first operand, an int64, chooses a body, the others are what all bodies read. An index out of range takes
the nearest. ``params``: ``branches``, ``shapes`` (of all results).

References are loops in Python that run bodies by the references of their rows: they state values, not bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from tenferro.tracer.dims import Extent, Leaf, evaluate, leaves, mapped
from tenferro.tracer.errors import DtypeError, ShapeError
from tenferro.tracer.op import Absent, Control, Op
from tenferro.tracer.ops import control_rules as rules
from tenferro.tracer.program import ArrayType, DimScalar, Literal, Params, Value

RunBody = Callable[[Any, Sequence[Any]], Sequence[Any]]
"""(body, arrays and ints for its inputs) → its results."""


def _infer_scan(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
    carry = tuple(ArrayType(t.dtype, t.shape) for t in types[: params["carry"]])
    outputs = params["body"].outputs
    _same_dtypes("scan", carry, outputs[: len(carry)])
    stacked = outputs[len(carry) :]
    return (*carry, *(ArrayType(t.dtype, s) for t, s in zip(stacked, params["shapes"], strict=True)))


def _infer_while(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
    carry = tuple(ArrayType(t.dtype, t.shape) for t in types[: params["carry"]])
    (condition,), outputs = params["condition"].outputs, params["body"].outputs
    if condition.dtype != np.bool_ or condition.rank != params["lanes"]:
        raise ShapeError(f"while: a condition of type {condition}; bools of rank {params['lanes']} are needed")
    _same_dtypes("while", carry, outputs[: len(carry)])
    stacked = outputs[len(carry) :]
    return (*carry, *(ArrayType(t.dtype, s) for t, s in zip(stacked, params["shapes"], strict=True)))


def _infer_cond(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
    index, branches = types[0], params["branches"]
    if index.dtype != np.int64 or index.shape:
        raise DtypeError(f"cond: an index of type {index}; one int64 is needed")
    first = branches[0].outputs
    for branch in branches[1:]:
        _same_dtypes("cond", first, branch.outputs)
    return tuple(ArrayType(t.dtype, s) for t, s in zip(first, params["shapes"], strict=True))


def _same_dtypes(name: str, wanted: Sequence[ArrayType], found: Sequence[ArrayType]) -> None:
    if [t.dtype for t in wanted] != [t.dtype for t in found]:
        raise DtypeError(
            f"{name}: {[str(t) for t in wanted]} became {[str(t) for t in found]}; equal dtypes are needed"
        )


# -- loops in Python --------------------------------------------------------------------------------------------------


def scanned(run: RunBody, operands: Sequence[Any], params: Params | dict[str, Any]) -> tuple[Any, ...]:
    """``scan`` by running its body turn by turn. Results are arrays of their own, without a turn too."""
    count, walked, length = params["carry"], params["walked"], params["length"]
    carry, xs, rest = list(operands[:count]), operands[count : count + walked], operands[count + walked :]
    body = params["body"]
    stacks = [np.zeros(s, t.dtype) for t, s in zip(body.outputs[count:], params["shapes"], strict=True)]
    turns = range(length - 1, -1, -1) if params["reverse"] else range(length)
    for turn in turns:
        found = run(body, [*carry, *(x[turn] for x in xs), *rest])
        carry = list(found[:count])
        for k, stack in enumerate(stacks, count):
            stack[turn] = found[k]
        del found  # before the next turn makes its own
    return (*(carry if length else map(np.array, carry)), *stacks)


def looped(run: RunBody, operands: Sequence[Any], params: Params | dict[str, Any]) -> tuple[Any, ...]:
    """``while`` by running its bodies turn by turn. Results are arrays of their own, without a turn too."""
    count = params["carry"]
    begun, rest = list(operands[:count]), operands[count:]
    body, condition = params["body"], params["condition"]
    carry = begun
    kept: list[list[Any]] = [[] for _ in body.outputs[count:]]
    while np.any(run(condition, [*carry, *rest])[0]):
        found = run(body, [*carry, *rest])
        carry = list(found[:count])
        for k, entries in enumerate(kept, count):
            entries.append(np.array(found[k]))
        del found  # before the next turn makes its own
    stacks = [
        np.array(entries, t.dtype).reshape(len(entries), *shape[1:])
        for entries, t, shape in zip(kept, body.outputs[count:], params["shapes"], strict=True)
    ]
    return (*(map(np.array, begun) if carry is begun else carry), *stacks)


def branched(run: RunBody, operands: Sequence[Any], params: Params | dict[str, Any]) -> tuple[Any, ...]:
    """``cond`` by running the body that is chosen."""
    index, *rest = operands
    branches = params["branches"]
    return tuple(run(branches[min(max(int(index), 0), len(branches) - 1)], rest))


LOOPS: dict[str, Callable[[RunBody, Sequence[Any], Any], tuple[Any, ...]]] = {
    "scan": scanned, "while": looped, "cond": branched,
}  # fmt: skip


def interpreted(body: Any, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """A body's results by the references of its rows, on NumPy arrays and ints."""
    program = body.program
    values: dict[int, Any] = {}
    env: dict[Leaf, int] = {}
    for declared, x in zip(program.inputs, inputs, strict=True):
        values[declared.value.id] = x
        if declared.kind == "int":
            env[Leaf("int", declared.value.id)] = int(x)

    def read(x: Any) -> Any:
        match x:
            case Value(id=number):
                return values[number]
            case Literal(value=value, dtype=dtype):
                return np.asarray(value, dtype)
            case DimScalar(expr=expr, dtype=dtype):
                return np.asarray(evaluate(expr, env), dtype)

    for number, operation in enumerate(program.operations):
        known = partial(_number, env, {Leaf("runtime", number, axis) for axis in range(2)})
        params = {k: mapped(v, known) for k, v in operation.params.items()}
        with np.errstate(all="ignore"):
            found = operation.op.reference(*map(read, operation.inputs), **params)
        results = found if isinstance(found, tuple) else (found,)
        for value, result in zip(operation.outputs, results, strict=True):
            values[value.id] = np.asarray(result, value.type.dtype)
        for output, axis in operation.op.measures(operation.params):
            env[Leaf("runtime", number, axis)] = values[operation.outputs[output].id].shape[axis]
    return tuple(np.asarray(read(o), o.type.dtype) for o in program.outputs)


def _number(env: Mapping[Leaf, int], own: set[Leaf], size: Extent) -> Extent:
    """A size as a number, but for one that the operation itself measures."""
    return size if own & leaves(size) else evaluate(size, env)


def _reference(kind: str) -> Callable[..., Any]:
    def reference(*operands: Any, **params: Any) -> tuple[Any, ...]:
        return LOOPS[kind](interpreted, operands, params)

    return reference


scan = Op(
    "scan", Control("scan"), _infer_scan, _reference("scan"),
    rules.jvp_scan, rules.transpose_scan, rules.batch_scan,
)  # fmt: skip
while_ = Op(
    "while", Control("while"), _infer_while, _reference("while"),
    rules.jvp_while, Absent("a loop is never linear: on a tape it stands as a scan of what it left"), rules.batch_while,
)  # fmt: skip
cond = Op(
    "cond", Control("cond"), _infer_cond, _reference("cond"),
    rules.jvp_cond, rules.transpose_cond, rules.batch_cond,
)  # fmt: skip
