"""A trace written down as two texts, and read in another process: what it assumes, and the program with its results.

The first text is enough to tell whether the program serves a call; the second is read only then.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import FunctionType
from typing import Any

import numpy as np

from tenferro.tracer import tree
from tenferro.tracer.capture_guards import Captures
from tenferro.tracer.code_names import mentioned_names
from tenferro.tracer.dependencies import Dependencies, are_unchanged
from tenferro.tracer.dims import Leaf, evaluate
from tenferro.tracer.ownership import Ownership, is_foreign
from tenferro.tracer.places import Place
from tenferro.tracer.program import ShapeGuard
from tenferro.tracer.records import dataclass
from tenferro.tracer.references import PlaceWriter
from tenferro.tracer.result import OutLeaf, TraceResult
from tenferro.tracer.signature import BoundCall
from tenferro.tracer.stored import DamagedError, NotStored, Plain, Reader, Writer, data_of, data_text, dtype_text
from tenferro.tracer.stored_captures import CaptureReader, CaptureWriter

MAX_CONSTANTS = 1 << 20
"""Bytes of arrays that a trace has made."""
_LEAF_KINDS = ("array", "scalar", "number")
_UNCALLED = frozenset({"__init__", "__repr__", "__eq__", "__hash__", "__str__", "__init_subclass__"})


@dataclass(frozen=True, slots=True)
class Outside:
    """What a trace has met outside the function: ``functions`` that it may have run, ``foreign`` places of modules and
    classes that no guard compares, ``doubts`` about what is taken as it is."""

    owner: Ownership
    functions: tuple[FunctionType, ...]
    foreign: tuple[tuple[Place, Any], ...]
    doubts: tuple[tuple[Place | None, str], ...]


@dataclass(frozen=True, slots=True)
class Texts:
    """``assumed`` tells whether the program serves; ``program`` is all the rest."""

    assumed: bytes
    program: bytes


def written(
    function: Callable[..., Any], call: BoundCall, result: TraceResult, captures: Captures, outside: Outside
) -> Texts:
    """The trace of a function for a call. NotStored says why another process could not use it."""
    rests_on = Dependencies(outside.owner)
    rests_on.functions(outside.functions)
    writer = Writer()
    places = PlaceWriter(writer, function, outside.functions, captures.guards)
    for place, doubt in outside.doubts:
        if not places.is_inside(place):
            raise NotStored(doubt)
    read = CaptureWriter(writer, places, rests_on).captures(captures, outside.foreign)
    _check_classes(call, result, outside, rests_on)
    assumed = {
        "captures": read,
        "arrays": [
            [k, dtype_text(p.value.type.dtype), p.value.type.rank]
            for k, p in enumerate(result.program.inputs)
            if p.kind == "captured"
        ],
        "guards": [writer.guard(g) for g in result.program.guards],
        "files": rests_on.files(),
        "tables": writer.tables,
    }
    return Texts(_encoded(assumed), _encoded(_result(result)))


def _encoded(x: Plain) -> bytes:
    try:
        return json.dumps(x, separators=(",", ":")).encode()
    except (ValueError, RecursionError) as error:  # an int of thousands of digits, a deep structure
        raise NotStored(str(error)) from None


def _result(result: TraceResult) -> Plain:
    writer = Writer()
    size = sum(array.nbytes for _, array in result.constants)
    if size > MAX_CONSTANTS:
        raise NotStored(f"arrays that the trace has made are {size} bytes")
    return {
        "program": writer.program(replace(result.program, guards=())),
        "captured": [k for k, _ in result.captured],
        "constants": [[k, dtype_text(a.dtype), list(a.shape), data_text(a.tobytes())] for k, a in result.constants],
        "structure": writer.value(result.out_treedef),
        "leaves": [[kind, writer.extent(x) if kind == "size" else writer.value(x)] for kind, x in result.out_leaves],
        "writes": [list(w) for w in result.writes],
        "wrapped": result.uses_tenferro_arrays,
        "tables": writer.tables,
    }


# -- classes of arguments and results -------------------------------------------------------------------------


def _check_classes(call: BoundCall, result: TraceResult, outside: Outside, rests_on: Dependencies) -> None:
    """Containers of the user's own are opened and made by their classes, and members of enumerations are as they are:
    methods of theirs are not followed."""
    words = frozenset(n for f in outside.functions for n in mentioned_names(f.__code__))
    if call.receiver is not None:
        rests_on.module(type(call.receiver).__module__)
    for cls in {*_classes(call.key), *_classes(result.out_treedef), *rests_on.enumerations}:
        if cls.__module__.startswith("tenferro.") or is_foreign(cls.__module__):
            continue
        rests_on.module(cls.__module__)
        if tree.is_registered(cls):
            raise NotStored(f"class {cls.__qualname__} is opened and made by functions of its own")
        if (name := _followed_by_nobody(cls, words)) is not None:
            raise NotStored(f"{cls.__qualname__}.{name} is a member of a class that is not followed")


def _classes(key: Any) -> Iterator[type]:
    """The classes of containers and enumerations in a lookup key."""
    if isinstance(key, tree.TreeDef):
        if key.node is not None:
            yield key.node
        for child in key.children:
            yield from _classes(child)
    elif isinstance(key, tuple):
        for part in key:
            yield from _classes(part)
    elif not isinstance(key, type | np.dtype) and hasattr(type(key), "__members__"):
        yield type(key)


def _followed_by_nobody(cls: type, words: frozenset[str]) -> str | None:
    """A method or another member of the class that the function may use."""
    declared = {n for base in cls.__mro__ for n in vars(base).get("__annotations__", ())}
    is_open = not words.isdisjoint({"getattr", "attrgetter", "methodcaller", "vars", "__dict__"})
    for base in cls.__mro__:
        if is_foreign(base.__module__):
            continue
        for name, member in vars(base).items():
            is_special = name.startswith("__") and name.endswith("__")
            is_own = isinstance(member, FunctionType) and _is_users(member)
            if is_special and not (is_own and name not in _UNCALLED):
                continue
            if not is_special and (name in declared or not (name in words or is_open) or _is_given(cls, name, member)):
                continue
            return name
    return None


def _is_users(member: FunctionType) -> bool:
    """Whether the method was written, not made by ``dataclass`` or ``namedtuple``."""
    is_made = member.__code__.co_filename == "<string>"
    return not is_made and not is_foreign(member.__globals__.get("__name__") or "")


def _is_given(cls: type, name: str, member: Any) -> bool:
    """What every namedtuple and enumeration has, and their own fields and members."""
    if isinstance(member, FunctionType) and not _is_users(member):
        return True
    return name in getattr(cls, "_fields", ()) or name in getattr(cls, "__members__", ()) or name.startswith("_")


# -- reading --------------------------------------------------------------------------------------------------------


def assumed_here(
    text: bytes, function: Callable[..., Any], call: BoundCall
) -> tuple[Captures, list[ShapeGuard]] | None:
    """What the program assumes, where all of it holds for this call in this process; else None. Any error means the
    same."""
    found = json.loads(text)
    if not are_unchanged(found["files"]):
        return None
    reader = Reader(found["tables"])
    captures = CaptureReader(reader, function, call.receiver).captures(found["captures"])
    if captures is None:
        return None
    arrays = captures.read(call.receiver)
    if arrays is None:
        return None
    inputs: dict[int, Any] = {k: leaf.value for k, leaf in enumerate(call.dynamic)}
    for (k, dtype, rank), array in zip(found["arrays"], arrays, strict=True):
        if array.dtype.newbyteorder("=") != reader.dtype(dtype) or array.ndim != rank:
            return None
        inputs[k] = array
    guards = [reader.guard(g) for g in found["guards"]]
    return (captures, guards) if holds_for(guards, inputs) else None


def is_current(text: bytes) -> bool:
    """Whether the files that the trace rests on are those that are loaded here."""
    return are_unchanged(json.loads(text)["files"])


def holds_for(guards: Sequence[ShapeGuard], inputs: Mapping[int, Any]) -> bool:
    """Whether guards on sizes hold for inputs by number."""
    sizes = _sizes(inputs)
    return all(_holds(g, sizes) for g in guards)


def _sizes(inputs: Mapping[int, Any]) -> dict[Leaf, int]:
    found: dict[Leaf, int] = {}
    for k, value in inputs.items():
        if type(value) is int:
            found[Leaf("int", k)] = value
        else:
            found |= {Leaf("extent", k, axis): n for axis, n in enumerate(value.shape)}
    return found


def _holds(guard: ShapeGuard, sizes: dict[Leaf, int]) -> bool:
    lhs, rhs = evaluate(guard.lhs, sizes), evaluate(guard.rhs, sizes)
    holds = lhs == rhs if guard.relation == "==" else (lhs < rhs if guard.relation == "<" else lhs <= rhs)
    return holds == guard.holds


def result_of(text: bytes, guards: Sequence[ShapeGuard], arrays: Sequence[Any]) -> TraceResult:
    """The trace, with the arrays that stand in its places now. The program is yet to be checked."""
    found = json.loads(text)
    reader = Reader(found["tables"])
    program = replace(reader.program(found["program"]), guards=tuple(guards))
    constants = []
    for k, dtype, shape, data in found["constants"]:
        array = np.frombuffer(data_of(data), reader.dtype(dtype)).reshape(shape).copy()
        kind = program.inputs[k]
        if kind.kind != "constant" or (kind.value.type.dtype, kind.value.type.shape) != (array.dtype, array.shape):
            raise DamagedError("a constant of another type")
        constants.append((int(k), array))
    structure = reader.value(found["structure"])
    leaves = tuple([_leaf(reader, len(program.outputs), *leaf) for leaf in found["leaves"]])
    if not isinstance(structure, tree.TreeDef) or structure.num_leaves != len(leaves):
        raise DamagedError("a structure that does not fit")
    writes = tuple([(int(i), int(o)) for i, o in found["writes"]])
    if any(not (0 <= i < len(program.inputs) and 0 <= o < len(program.outputs)) for i, o in writes):
        raise DamagedError("a write of what is not there")
    captured = tuple(zip(found["captured"], arrays, strict=True))
    return TraceResult(program, captured, tuple(constants), structure, leaves, writes, found["wrapped"] is True)


def _leaf(reader: Reader, outputs: int, kind: Any, x: Plain) -> OutLeaf:
    if kind == "size":
        return ("size", reader.extent(x))
    if kind == "static":
        return ("static", reader.value(x))
    if kind not in _LEAF_KINDS or type(x) is not int or not 0 <= x < outputs:
        raise DamagedError(f"{kind!r} is no result")
    return (kind, x)
