"""Shape guards in, one Python predicate over the inputs out.

The predicate is one expression, compiled once: a program with five guards is checked in about a microsecond.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from tenferro.tracer import dims
from tenferro.tracer.dims import Atom, Extent, Leaf
from tenferro.tracer.program import SemanticProgram, ShapeGuard

Predicate: TypeAlias = Callable[[Sequence[Any]], bool]


def _atom_text(atom: Atom) -> str:
    if atom.leaf is not None:
        return str(atom.leaf)
    left, right = (extent_text(a) for a in atom.args)
    match atom.kind:
        case "floordiv":
            return f"(({left}) // ({right}) if ({right}) else 0)"
        case "mod":
            return f"(({left}) % ({right}) if ({right}) else 0)"
        case _:
            return f"{atom.kind}({left}, {right})"


def extent_text(extent: Extent) -> str:
    """The extent as a Python expression over its leaves' names."""
    if isinstance(extent, int):
        return str(extent)
    return " + ".join("*".join([str(c), *map(_atom_text, monomial)]) for monomial, c in extent.terms)


def guard_text(guard: ShapeGuard) -> str:
    """The guard as a Python expression that is true where it holds."""
    text = f"{extent_text(guard.lhs)} {guard.relation} {extent_text(guard.rhs)}"
    return text if guard.holds else f"not ({text})"


def compile_guards(guards: Sequence[ShapeGuard]) -> Predicate:
    """A predicate that takes the program's inputs (arrays and ints, in order)."""
    if not guards:
        return lambda inputs: True
    return _compiled(_guard_lines(guards), {})


def compile_fit(program: SemanticProgram) -> Predicate:
    """A predicate that is true for plain, aligned arrays and ints of the program's dtypes, ranks and fixed sizes, under
    its guards."""
    lines = [f"    if len(x) != {len(program.inputs)}: return False"]
    names: dict[str, Any] = {"ndarray": np.ndarray}
    for k, declared in enumerate(program.inputs):
        if declared.kind == "int":
            lines.append(f"    if type(x[{k}]) is not int or not {-(2**63)} <= x[{k}] < {2**63}: return False")
            continue
        kind = declared.value.type
        names[f"dtype{k}"] = kind.dtype
        lines.append(f"    a = x[{k}]")
        lines.append(f"    if type(a) is not ndarray or a.dtype is not dtype{k} or a.ndim != {kind.rank}: return False")
        lines.append("    if not a.flags.aligned: return False")
        fixed = [f"a.shape[{axis}] != {n}" for axis, n in enumerate(kind.shape) if isinstance(n, int)]
        lines += [f"    if {test}: return False" for test in fixed]
    guards = _guard_lines(program.guards) if program.guards else ["    return True"]
    return _compiled(lines + guards, names)


def _guard_lines(guards: Sequence[ShapeGuard]) -> list[str]:
    used: set[Leaf] = set()
    for guard in guards:
        used |= dims.leaves(guard.lhs) | dims.leaves(guard.rhs)
    lines = []
    for leaf in sorted(used):
        source = f"x[{leaf.index}]" if leaf.kind == "int" else f"x[{leaf.index}].shape[{leaf.axis}]"
        lines.append(f"    {leaf} = {source}")
    return [*lines, "    return " + " and ".join(f"({guard_text(g)})" for g in guards)]


def _compiled(body: Sequence[str], namespace: dict[str, Any]) -> Predicate:
    exec(compile("\n".join(["def holds(x):", *body]), "<tenferro guards>", "exec"), namespace)
    predicate: Predicate = namespace["holds"]
    return predicate


def environment(program: SemanticProgram, inputs: Sequence[Any]) -> dict[Leaf, int]:
    """The values of the leaves of an actual call."""
    env: dict[Leaf, int] = {}
    for k, (declared, value) in enumerate(zip(program.inputs, inputs, strict=True)):
        if declared.kind == "int":
            env[Leaf("int", k)] = int(value)
            continue
        for axis, n in enumerate(value.shape):
            env[Leaf("extent", k, axis)] = n
    return env


def holds(guard: ShapeGuard, env: dict[Leaf, int]) -> bool:
    """Whether one guard holds for these sizes."""
    lhs, rhs = dims.evaluate(guard.lhs, env), dims.evaluate(guard.rhs, env)
    match guard.relation:
        case "==":
            return (lhs == rhs) == guard.holds
        case "<":
            return (lhs < rhs) == guard.holds
        case "<=":
            return (lhs <= rhs) == guard.holds


_LEAF = re.compile(r"\b(?:d(\d+)_(\d+)|n(\d+))\b")


def in_words(text: str, program: SemanticProgram) -> str:
    """Names of leaves (``d0_1``) replaced by what the user calls them (``x.shape[1]``)."""

    def name(match: re.Match[str]) -> str:
        index, axis, number = match.groups()
        k = int(index if index is not None else number)
        if k >= len(program.inputs):
            return match.group()
        return program.inputs[k].name + (f".shape[{axis}]" if index is not None else "")

    return _LEAF.sub(name, text)
