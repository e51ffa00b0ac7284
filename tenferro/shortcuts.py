"""The native way of a jitted function's calls, its Python half: a call that was served in, an entry for such calls out.

Such calls are those whose arguments have the same classes, dtypes, sizes, strides and ints, in the same containers.
Captured numbers, arrays and attributes are looked at too. What has no entry (``tenferro.native_records`` says what)
goes the long way, with the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tenferro.array import Array
from tenferro.engines.cpu.entries import Entry, Form, Leaf
from tenferro.engines.cpu.native import server
from tenferro.engines.cpu.native_call import MAX_ENTRIES
from tenferro.engines.cpu.native_types import Callable as NativeCallable
from tenferro.engines.cpu.shortcuts import State, initialise, make_native, set_wrapper
from tenferro.guards import environment
from tenferro.native_records import Unfit, Writer
from tenferro.tracer import switches
from tenferro.tracer.dims import evaluate
from tenferro.tracer.errors import LoweringError
from tenferro.tracer.tree import TreeDef

if TYPE_CHECKING:
    from tenferro.compiled import Compiled

_FORMS: dict[type | None, Any] = {None: "leaf", type(None): "none", tuple: "tuple", list: "list", dict: "dict"}


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

    def drop(self, entry: Entry) -> None:
        """Forget calls like one."""
        self._known = [known for known in self._known if known[0] is not entry]
        self._state.drop(entry)

    def used(self) -> list[Compiled]:
        """The programs that have served native calls since this was last asked."""
        found = [compiled for entry, compiled, before in self._known if entry.served > before]
        self._known = [(entry, compiled, entry.served) for entry, compiled, _ in self._known[:MAX_ENTRIES]]
        return found

    def learn(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        order: Sequence[tuple[int, bool]],
        receiver: int | None,
        compiled: Compiled,
        inputs: Sequence[Any],
        wrapped: bool,
        is_spent: bool,
    ) -> Entry | None:
        """Serve calls like this one, which the program has just served, from now on; None where that cannot be.

        order: the call's values (arguments, then keywords as given) in the order of the program's inputs, and whether
        each is static. receiver: the value that is the method's object. inputs: what they are as inputs."""
        if switches.is_paused() or not compiled.is_direct:
            return None
        values = [*args, *kwargs.values()]
        late = compiled.late(None if receiver is None else values[receiver])
        if late is None:
            return None
        inputs = (*inputs, *late.inputs)
        entry = Entry(len(args), tuple(kwargs))
        shortcut = compiled.shortcut(inputs, is_spent)
        if shortcut is None:
            return None
        writer = Writer(entry, shortcut.places)
        try:
            if receiver is not None:
                writer.receiver(receiver, values[receiver])
            for k, is_static in order:
                writer.static(k, values[k]) if is_static else writer.write(k, values[k])
            writer.captures(compiled)
            if len(writer.inputs) != len(inputs):
                return None
            engine = compiled.engines[0] if wrapped or writer.found_wrapped else None
            treedef, _ = compiled.results
            form, leaves = _form(treedef), _leaves(compiled, writer, engine, inputs)
        except (Unfit, LoweringError):
            return None
        for k in compiled.donated(shortcut):
            others = {g.array: x for g, x in zip(writer.inputs, inputs, strict=True) if isinstance(x, np.ndarray)}
            others.pop(writer.inputs[k].array)
            entry.apart(writer.inputs[k].array, inputs[k], others)
        if not entry.seal(shortcut, form, leaves, {k: given.array for k, given in enumerate(writer.inputs)}):
            return None
        self._state.add(entry)
        self._known = [(entry, compiled, 0), *self._known[: MAX_ENTRIES - 1]]
        return entry


def _form(treedef: TreeDef) -> Form:
    kind = _FORMS.get(treedef.node)
    if kind is None:
        raise Unfit
    keys: Any = treedef.metadata if kind == "dict" else ()
    return Form(kind, tuple(map(_form, treedef.children)), tuple(keys))


def _leaves(compiled: Compiled, writer: Writer, engine: object, inputs: Sequence[Any]) -> list[Leaf]:
    """What ``Compiled.run`` makes of a result, leaf by leaf. ``engine``: of the tn.Arrays among them, None where arrays
    are NumPy's."""
    leaves: list[Leaf] = []
    first: dict[tuple[str, int], int] = {}
    for result in compiled.results[1]:
        value = result.value
        match result.source:
            case "static":
                leaves.append(Leaf("object", value))
                continue
            case "size":
                leaves.append(Leaf("object", evaluate(value, environment(compiled.program, inputs))))
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
