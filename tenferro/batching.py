"""``vmap``: a function of one lane in, a function of arrays with an axis of lanes out.

The function is run once, on values with the axis taken away; what it recorded is replayed for all lanes, along the
``batch`` column of the table of ops. A result has the bits that each lane alone would have.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from tenferro.staging import Stage, Staged
from tenferro.tracer.derivation import Derivation
from tenferro.tracer.dim import as_extent
from tenferro.tracer.dims import Extent
from tenferro.tracer.errors import BatchError
from tenferro.tracer.exact import static_key
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.program import Operand, Operation
from tenferro.tracer.records import dataclass
from tenferro.tracer.signature import argument_name, function_name
from tenferro.tracer.substitution import bodies
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.transform.batch import Lanes
from tenferro.tracer.transform.inputs import Leaf, Opened, delivered, is_numeric, is_size, open_tree, results_of
from tenferro.tracer.transform.keys import key_of_trace
from tenferro.tracer.transform.linear import as_recorded
from tenferro.tracer.transform.positions import of_each, placeholder
from tenferro.tracer.transform.recording import taken_out
from tenferro.tracer.tree import paired, structure
from tenferro.transformed import Transformed

Function = Callable[..., Any]
Axes = Any
"""An int, None, or a pytree of them that is a prefix of the values' structure."""


def vmap(
    fun: Function, in_axes: Axes = 0, out_axes: Axes = 0, axis_name: str | None = None, axis_size: int | None = None
) -> Transformed:
    """A function that applies ``fun`` to every lane of its arguments.

    in_axes: for each positional argument the axis of its lanes, or None where it is the same in all; an int for all
    arguments, or a sequence whose entries may be pytrees. Keyword arguments have lanes along axis 0. out_axes: where
    the results get theirs; None for results that are the same in all lanes. axis_name: what ``tn.psum`` and its like
    call the lanes; axis_size: how many there are, needed where no argument has lanes.

    BatchError for axes that the arguments do not have, for sizes that differ, and for what cannot be done in lanes."""
    name = f"vmap({function_name(fun)})"
    _check_axes(in_axes, name)

    return Transformed(fun, _Mapped(name, in_axes, out_axes, axis_name, axis_size), name)


class _Mapped(Staged):
    """What ``vmap`` makes of a function; it runs inside a trace."""

    def __init__(self, name: str, in_axes: Axes, out_axes: Axes, axis_name: str | None, axis_size: int | None) -> None:
        self._name = name
        self._axes = in_axes, out_axes
        self._axis = axis_name, axis_size

    def stage(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Stage:
        """Run the function on one lane."""
        trace, (in_axes, out_axes) = running_trace(self._name), self._axes
        mapping = _Mapping(trace, self._name, *self._axis)
        lane = mapping.record(function, args, kwargs, in_axes)

        def key() -> Hashable | None:
            found = key_of_trace(trace, [lane.given, lane.results], lane.operations)
            try:
                return None if found is None else (lane.axes, static_key(out_axes), *self._axis, found)
            except TypeError:  # of a class of the user's own
                return None

        return Stage(trace, key, lambda: mapping.finish(lane, out_axes))


def _check_axes(in_axes: Axes, name: str) -> None:
    if not (in_axes is None or isinstance(in_axes, int | np.integer | tuple | list)):
        raise TypeError(
            f"{name}: in_axes of class {type(in_axes).__name__}; an int, None, or a tuple with one for each argument "
            f"is needed{at(user_line())}"
        )


@dataclass(frozen=True, slots=True)
class _Lane:
    """What a function recorded for one lane. ``axes``: of the lanes of each numeric leaf of the arguments."""

    given: Opened
    axes: tuple[int | None, ...]
    lanes: Lanes
    operations: list[Operation]
    results: Opened


class _Mapping:
    """One call of a mapped function."""

    def __init__(self, trace: Trace, name: str, axis_name: str | None, axis_size: int | None) -> None:
        self._trace = trace
        self._name = name
        self._axis_name = axis_name
        self._function: Function | None = None  # for error texts
        self._size: Extent | None = None if axis_size is None else as_extent(axis_size)
        if axis_size is not None and (self._size is None or isinstance(self._size, int) and self._size < 0):
            raise BatchError(f"{name}: axis_size is {axis_size!r}; a size of 0 or more is needed{at(user_line())}")

    def record(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any], in_axes: Axes) -> _Lane:
        """What the function records for one lane."""
        trace, name = self._trace, self._name
        self._function = function
        given = open_tree(trace, (args, kwargs), f"{name}: the arguments")
        axes = self._axes_of_arguments(args, kwargs, in_axes)
        mine = [axes[place] for place in given.places]
        operands = [self._with_lanes(leaf, axis) for leaf, axis in zip(given.leaves, mine, strict=True)]
        if self._size is None:
            raise BatchError(
                f"{name}: no argument has lanes; one axis in in_axes, or axis_size, is needed{at(user_line())}"
            )
        lanes = Lanes(trace, self._size, self._axis_name)
        with taken_out(trace, "vmap") as recording:
            trace.axes.append(lanes)
            try:
                known = [given.values[place] for place in given.places]
                variables = [
                    value if x is None and is_size(value) else self._variable(lanes, leaf, x)
                    for value, leaf, x in zip(known, given.leaves, operands, strict=True)
                ]
                positional, named = given.close(variables)
                with bodies(trace, function) as (body,):
                    results = results_of(trace, body(*positional, **named), f"{name}: the result")
            finally:
                trace.axes.pop()
        return _Lane(given, tuple(mine), lanes, recording.operations, results)

    def finish(self, lane: _Lane, out_axes: Axes) -> Any:
        """The results of all lanes."""
        with as_recorded(self._trace):
            lane.lanes.replay(lane.operations)
        wanted = _prefixed(out_axes, lane.results, f"{self._name}: out_axes")
        made = [self._result(lane.lanes, leaf, axis) for leaf, axis in zip(lane.results.leaves, wanted, strict=True)]
        return lane.results.close(made)

    # -- arguments ---------------------------------------------------------------------------------------------------

    def _axes_of_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any], in_axes: Axes) -> list[int | None]:
        what = f"{self._name}: in_axes"
        if isinstance(in_axes, tuple | list):
            if len(in_axes) != len(args):
                raise BatchError(
                    f"{what} has {len(in_axes)} entries for {len(args)} positional arguments; one for each is "
                    f"needed{at(user_line())}"
                )
            found = [a for axis, arg in zip(in_axes, args, strict=True) for a in _by_leaf(axis, arg, what)]
        else:
            found = _by_leaf(in_axes, args, what)
        return found + _by_leaf(0, kwargs, what)

    def _with_lanes(self, leaf: Leaf, axis: int | None) -> Operand | None:
        """The operand with its lanes in front; None where it is the same in all."""
        if axis is None:
            return None
        shape = leaf.operand.type.shape
        if not -len(shape) <= axis < len(shape):
            raise BatchError(
                f"{self._name}: in_axes has axis {axis} for argument {self._shown(leaf)} of rank {len(shape)}; None, "
                f"or an axis that it has, is needed{at(user_line())}"
            )
        axis %= len(shape)
        self._same_size(shape[axis], leaf)
        order = [axis, *(k for k in range(len(shape)) if k != axis)]
        return Derivation(self._trace).permuted(leaf.operand, order)

    def _same_size(self, size: Extent, leaf: Leaf) -> None:
        if self._size is None:
            self._size = size
        elif not self._trace.guard("==", self._size, size):
            describe = self._trace.describe
            raise BatchError(
                f"{self._name}: argument {self._shown(leaf)} has {describe(size)} lanes, others have "
                f"{describe(self._size)}; one number of lanes is needed{at(user_line())}"
            )

    def _shown(self, leaf: Leaf) -> str:
        return argument_name(leaf.path, self._function)

    def _variable(self, lanes: Lanes, leaf: Leaf, operand: Operand | None) -> Any:
        trace = self._trace
        if operand is None:
            return leaf.variable(trace, leaf.operand, f"argument of {self._name}")
        value = placeholder(trace, lanes, operand)
        made = leaf.variable(trace, value, f"argument of {self._name}")
        made._scalar = leaf.weak  # an element of an array is no scalar of NumPy's: a lane is an array
        return made

    # -- results -----------------------------------------------------------------------------------------------------

    def _result(self, lanes: Lanes, leaf: Leaf, axis: int | None) -> Any:
        trace = self._trace
        if axis is None:
            if lanes.of(leaf.operand)[1]:
                raise BatchError(
                    f"{self._name}: out_axes is None for result{leaf.path}, which differs between lanes; an axis is "
                    f"needed{at(user_line())}"
                )
            return delivered(trace, of_each(trace, leaf.operand, lambda x: lanes.of(x)[0]), leaf)
        full = of_each(trace, leaf.operand, lanes.full)
        rank = len(full.type.shape)
        if not -rank <= axis < rank:
            raise BatchError(
                f"{self._name}: out_axes has axis {axis} for result{leaf.path} of rank {rank} with its lanes; an axis "
                f"in [{-rank}, {rank}) is needed{at(user_line())}"
            )
        order = list(range(1, rank))
        order.insert(axis % rank, 0)
        return delivered(trace, Derivation(trace).permuted(full, order), leaf)


def _shown(value: Any) -> str:
    return "an array" if is_numeric(value) or type(value) is Leaf else f"a {type(value).__name__}"


def _prefixed(axes: Axes, results: Opened, what: str) -> list[int | None]:
    """An axis for each numeric leaf of results."""
    return _by_leaf(axes, results.close(results.leaves), what)


def _by_leaf(axes: Axes, value: Any, what: str) -> list[int | None]:
    """An axis for each leaf of a pytree: axes may stand for whole subtrees."""
    if isinstance(axes, np.integer):
        axes = int(axes)
    if axes is None or isinstance(axes, int):
        return [axes] * structure(value, lambda x: type(x) is Leaf).num_leaves
    pairs, differs = paired(axes, value)
    if differs:
        raise BatchError(
            f"{what} {axes!r} for {_shown(value)}, an entry {differs}; an int, None, or a prefix of the value's "
            f"structure is needed{at(user_line())}"
        )
    return [a for g, h in pairs for a in _by_leaf(g, h, what)]
