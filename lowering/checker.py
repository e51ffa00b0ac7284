"""The checker of SemanticPrograms: in goes a program, out comes nothing, or a CheckError that shows where it is broken.

It re-derives what the program states of itself: dense ids in order of definition, the type of every operation from its
row's rule, operands that exist and are defined before they are read, and one alias entry per output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, TypeAlias

from tenferro.tracer.errors import CheckError, TenferroError
from tenferro.tracer.program import ArrayType, Operation, Params, SemanticProgram, Value

NEIGHBOURS = 5


Derived: TypeAlias = dict[int, tuple[Operation, Sequence[ArrayType]]]
"""By its id an operation, and the types that its row's rule has derived."""


def check(program: SemanticProgram, after: str = "tracing", derived: Derived | None = None) -> None:
    """Raise CheckError, naming ``after`` (the pass that ran last), if the program is malformed.

    ``derived``: of the programs that were checked before; an operation that is still the same object has its types
    there, as they depend on nothing outside it. All else is checked again."""
    known: Derived = {} if derived is None else derived
    types: list[ArrayType] = []
    for number, i in enumerate(program.inputs):
        if i.value.id != number:
            _blame(program, after, None, f"input {i.name} is {i.value}; %{number} is needed")
        types.append(i.value.type)
    for number, operation in enumerate(program.operations):
        _check_operation(program, after, number, operation, types, known)
    for o in program.outputs:
        if isinstance(o, Value) and not (0 <= o.id < len(types) and _same(o.type, types[o.id])):
            _blame(program, after, None, f"output {o}: {o.type} is not defined with that type")
    _check_aliases(program, after)


def _check_operation(
    program: SemanticProgram, after: str, number: int, operation: Operation, types: list[ArrayType], known: Derived
) -> None:
    for x in operation.inputs:
        if isinstance(x, Value):
            if not 0 <= x.id < len(types):
                _blame(program, after, number, f"{x} is read before it is defined")
            if not _same(x.type, types[x.id]):
                _blame(program, after, number, f"{x} is read as {x.type} but defined as {types[x.id]}")
    try:
        _, derived = known.get(id(operation)) or _derive(operation, known)
    except (TenferroError, KeyError, ValueError, IndexError) as error:
        _blame(program, after, number, f"its type cannot be derived ({error!r})", error)
    if len(derived) != len(operation.outputs):
        _blame(program, after, number, f"{len(operation.outputs)} outputs; {len(derived)} are derived")
    for out, found in zip(operation.outputs, derived, strict=True):
        if out.id != len(types):
            _blame(program, after, number, f"{out} is defined; %{len(types)} is next")
        if not _same(out.type, found):
            _blame(program, after, number, f"{out} is stated as {out.type} but derived as {found}")
        types.append(out.type)
    _check_broadcast(program, after, number, operation)


def _derive(operation: Operation, known: Derived) -> tuple[Operation, Sequence[ArrayType]]:
    """Keeping the operation keeps its id its own."""
    types = operation.op.infer([x.type for x in operation.inputs], operation.params)
    known[id(operation)] = operation, types
    return operation, types


def _check_broadcast(program: SemanticProgram, after: str, number: int, operation: Operation) -> None:
    """``broadcast_to`` derives its shape from its parameters alone, so the axes that it stretches are checked here.
    Two symbols may be equal by a guard."""
    if operation.op.name != "broadcast_to":
        return
    params: Params = operation.params
    has_equations = any(g.relation == "==" and g.holds for g in program.guards)
    for n, axis in zip(operation.inputs[0].type.shape, params["axes"], strict=True):
        target = params["shape"][axis]
        is_symbolic = not (isinstance(n, int) and isinstance(target, int))
        if n not in (1, target) and not (is_symbolic and has_equations):
            _blame(program, after, number, f"size {n} does not stretch to {params['shape'][axis]} along axis {axis}")


def _check_aliases(program: SemanticProgram, after: str) -> None:
    if len(program.aliases) != len(program.outputs):
        _blame(program, after, None, f"{len(program.aliases)} aliases for {len(program.outputs)} outputs")
    for o, group in zip(program.outputs, program.aliases, strict=True):
        if group < 0 and not -1 - group < len(program.inputs):
            _blame(program, after, None, f"output {o} aliases input {-1 - group}, which does not exist")


def _same(a: ArrayType, b: ArrayType) -> bool:
    """Weakness matters to promotion alone, which is over when a program exists; passes may lose or gain it."""
    return a is b or (a.dtype == b.dtype and a.shape == b.shape)


def _blame(
    program: SemanticProgram, after: str, number: int | None, what: str, cause: Exception | None = None
) -> NoReturn:
    text = [f"program {program.name} is malformed after {after}: {what}"]
    if number is not None:
        first, last = max(0, number - NEIGHBOURS), min(len(program.operations), number + NEIGHBOURS + 1)
        for k in range(first, last):
            operation = program.operations[k]
            line = f"  # {operation.line}" if operation.line else ""
            text.append(f"{'->' if k == number else '  '} {k}: {operation}{line}")
    raise CheckError("\n".join(text)) from cause
