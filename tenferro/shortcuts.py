"""The native way of a jitted function's calls, its Python half: a call that was served in, an entry for such calls out.

Such calls are those whose arguments have the same classes, dtypes, sizes, strides and ints, in the same containers.
Captured numbers, arrays and attributes are looked at too. What has no entry (``tenferro.native_records`` says what)
goes the long way, with the same answer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tenferro.array import Array
from tenferro.engines.cpu.entries import Entry, Form, Leaf
from tenferro.engines.cpu.hinted import Formula
from tenferro.engines.cpu.native import server
from tenferro.engines.cpu.native_call import MAX_ENTRIES
from tenferro.engines.cpu.native_types import Callable as NativeCallable
from tenferro.engines.cpu.shortcuts import State, initialise, make_native, set_wrapper
from tenferro.engines.engine import Shortcut
from tenferro.engines.values import layout_sizes
from tenferro.guards import environment
from tenferro.native_records import Unfit, Writer
from tenferro.tracer import switches
from tenferro.tracer.dims import Leaf as DimLeaf, evaluate
from tenferro.tracer.errors import LoweringError
from tenferro.tracer.records import dataclass
from tenferro.tracer.tree import TreeDef, is_registered

if TYPE_CHECKING:
    from tenferro.compiled import Compiled, Late

_FORMS: dict[type | None, Any] = {None: "leaf", tuple: "tuple", list: "list", dict: "dict"}


@dataclass(frozen=True, slots=True)
class Served:
    """A call that a program has just served. ``order``: its values (arguments, then keywords as given) in the order of
    the program's inputs, and whether each is static; ``receiver``: the value that is the method's object; ``inputs``:
    what the values are as inputs; ``wrapped``: a tn.Array is among them."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    order: Sequence[tuple[int, bool]]
    receiver: int | None
    compiled: Compiled
    inputs: Sequence[Any]
    wrapped: bool

    @property
    def values(self) -> tuple[Any, ...]:
        """Arguments, then keywords."""
        return (*self.args, *self.kwargs.values())

    @property
    def object(self) -> Any:
        """The method's, None without one."""
        return None if self.receiver is None else self.values[self.receiver]


class Shortcuts:
    """The entries of one jitted function."""

    def __init__(self) -> None:
        _prepare_wrapper()
        self._state = State()
        self._known: list[tuple[Entry, Compiled, int]] = []  # with the calls that it had served when last asked

    def begin(self, function: NativeCallable, fallback: Callable[..., Any], bound: type, is_method: bool) -> None:
        """Have calls of a jitted function look at the entries first; where none serves they go to ``fallback``.
        ``bound``: the class of its bound methods."""
        make_native(function, "_native", self._state.receiver(fallback), bound, is_method)

    def serving(self, fallback: Callable[..., Any]) -> Callable[..., Any]:
        """A builtin that serves by the same entries and goes elsewhere where none does."""
        return server(*self._state.receiver(fallback))

    @property
    def hits(self) -> int:
        """Calls served natively."""
        return self._state.hits

    def clear(self) -> None:
        """Forget every call."""
        self._known = []
        self._state.clear()

    def has(self, entry: Entry) -> bool:
        """Whether calls like one are served."""
        return self._state.has(entry)

    def drop(self, entry: Entry) -> None:
        """Forget calls like one."""
        self._known = [known for known in self._known if known[0] is not entry]
        self._state.drop(entry)

    def used(self) -> list[Compiled]:
        """The programs that have served native calls since this was last asked."""
        found = [compiled for entry, compiled, before in self._known if entry.served > before]
        self._known = [(entry, compiled, entry.served) for entry, compiled, _ in self._known[:MAX_ENTRIES]]
        return found

    def learn(self, served: Served, is_spent: bool) -> Entry | None:
        """Serve calls like this one from now on; None where that cannot be. ``is_spent``: those of a former entry are
        used up."""
        late = self._late(served)
        if late is None:
            return None
        compiled, inputs = served.compiled, (*served.inputs, *late.inputs)
        entry = Entry(len(served.args), tuple(served.kwargs))
        shortcut = compiled.shortcut(inputs, is_spent)
        if shortcut is None:
            return None
        return self._learnt(entry, served, inputs, shortcut, environment(compiled.program, inputs))

    def learn_sizes(self, served: Served, is_spent: bool) -> Entry | None:
        """``learn`` for calls of any sizes for which the program would be bound as for these."""
        late = self._late(served)
        if late is None:
            return None
        compiled, inputs = served.compiled, (*served.inputs, *late.inputs)
        entry = Entry(len(served.args), tuple(served.kwargs))
        formula = Formula()
        layouts = layouts_of(formula, inputs)
        try:
            shortcut = compiled.shortcut_of_sizes(layouts, is_spent)
            if shortcut is None or not formula.is_open():
                return None
            return self._learnt(entry, served, inputs, shortcut, layout_sizes(layouts), formula)
        except Exception:  # some step of the binding asks for what such numbers cannot do
            return None

    def _late(self, served: Served) -> Late | None:
        """What the call's captures are; None where it cannot be a native one."""
        if switches.is_paused() or not served.compiled.is_direct:
            return None
        return served.compiled.late(served.object)

    def _learnt(
        self, entry: Entry, served: Served, inputs: Sequence[Any], shortcut: Shortcut, env: Mapping[DimLeaf, Any],
        formula: Formula | None = None,
    ) -> Entry | None:  # fmt: skip
        """Put the entry in force, once it is written."""
        compiled, values = served.compiled, served.values
        writer = Writer(entry, shortcut.places, formula is not None)
        try:
            if served.receiver is not None:
                writer.receiver(served.receiver, served.object)
            for k, is_static in served.order:
                writer.static(k, values[k]) if is_static else writer.write(k, values[k])
            writer.captures(compiled)
            if len(writer.inputs) != len(inputs):
                return None
            engine = compiled.engines[0] if served.wrapped or writer.found_wrapped else None
            form, leaves = _form(compiled.results[0]), _leaves(compiled, writer, engine, env)
        except (Unfit, LoweringError):
            return None
        for k in compiled.donated(shortcut):
            others = {g.array: x for g, x in zip(writer.inputs, inputs, strict=True) if isinstance(x, np.ndarray)}
            others.pop(writer.inputs[k].array)
            entry.apart(writer.inputs[k].array, inputs[k], others)
        if not entry.seal(shortcut, form, leaves, {k: given.array for k, given in enumerate(writer.inputs)}, formula):
            return None
        self._state.add(entry)
        self._known = [(entry, compiled, 0), *self._known[: MAX_ENTRIES - 1]]
        return entry


def layouts_of(formula: Formula, inputs: Sequence[Any]) -> list[Any]:
    """The inputs' ints, and shapes and strides of its arrays, as leaves in order."""

    def leaves(numbers: Sequence[int]) -> tuple[Any, ...]:
        return tuple([formula.leaf(n) for n in numbers])

    return [formula.leaf(x) if isinstance(x, int) else (leaves(x.shape), leaves(x.strides)) for x in inputs]


def _form(treedef: TreeDef) -> Form:
    """How a result lies in its containers. Unfit for classes that were registered."""
    node, inside = treedef.node, tuple(map(_form, treedef.children))
    if node is type(None):
        return Form("constant", keys=(None,))
    if node in _FORMS:
        return Form(_FORMS[node], inside, tuple(treedef.metadata) if node is dict else ())  # type: ignore[arg-type]
    if node is None or is_registered(node):
        raise Unfit
    if not dataclasses.is_dataclass(node):
        return Form("called", inside, (node,))
    static = [f.name for f in dataclasses.fields(node) if f.metadata.get("static")]
    names = [f.name for f in dataclasses.fields(node) if not f.metadata.get("static")]
    fixed = [Form("constant", keys=(value,)) for value in treedef.metadata]  # type: ignore[attr-defined]
    return Form("record", (*inside, *fixed), (node, *names, *static))


def _leaves(compiled: Compiled, writer: Writer, engine: object, env: Mapping[DimLeaf, Any]) -> list[Leaf]:
    """What ``Compiled.run`` makes of a result, leaf by leaf. ``engine``: of the tn.Arrays among them, None where arrays
    are NumPy's. ``env``: the call's sizes."""
    leaves: list[Leaf] = []
    first: dict[tuple[str, int], int] = {}
    for result in compiled.results[1]:
        value = result.value
        match result.source:
            case "static":
                leaves.append(Leaf("object", value))
                continue
            case "size":
                leaves.append(Leaf("size", evaluate(value, env)))
                continue
        again = first.setdefault((result.source, value), len(leaves))
        if again < len(leaves):
            leaves.append(Leaf("again", again))
        elif result.source == "input":
            leaves.append(_given(writer, value, engine))
        else:
            held_by = None if result.kind == "number" else engine
            leaves.append(Leaf("output", value, result.kind, held_by, result.kind == "scalar"))
    return leaves


def _given(writer: Writer, index: int, engine: object) -> Leaf:
    """An input that is a result: the caller's own object, but a tn.Array beside others."""
    given = writer.inputs[index]
    if given.kind is Array and given.engine is not engine:
        raise Unfit
    if given.kind is np.ndarray and engine is not None:
        return Leaf("value", given.array, "array", engine)
    return Leaf("value", given.value)


@cache
def _prepare_wrapper() -> None:
    initialise()
    set_wrapper(Array, "_data", "_engine", "_scalar")
