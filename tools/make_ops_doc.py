"""In: the table of ops and the registry of NumPy functions. Out: docs/ops.md, or with ``--check`` its differences.

python tools/make_ops_doc.py
"""

from __future__ import annotations

import argparse
import difflib
import inspect
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import assert_never

import numpy as np

import tenferro.tracer.api.registry  # noqa: F401 (fills API)
from tenferro.tracer.api.record import API
from tenferro.tracer.api.restrictions import PER_SIZE, REFUSED
from tenferro.tracer.errors import TenferroError
from tenferro.tracer.op import (
    Absent,
    Collective,
    Constant,
    Contraction,
    Control,
    Extension,
    Host,
    Indexed,
    Library,
    Op,
    Pointwise,
    Reduction,
    Update,
    View,
)
from tenferro.tracer.ops import OPS, host
from tenferro.tracer.program import ArrayType, Params
from tenferro.tracer.transform import marks

PAGE = Path(__file__).resolve().parent.parent / "docs" / "ops.md"
KINDS = {
    "bool": ("bool",),
    "int": ("int8", "int16", "int32", "int64"),
    "uint": ("uint8", "uint16", "uint32", "uint64"),
    "float": ("float16", "float32", "float64"),
    "complex": ("complex64", "complex128"),
}
INTRODUCTION = """\
# Ops

Made from the table in `tracer/ops` and the registry in `tracer/api` by `python tools/make_ops_doc.py`; a test keeps it
up to date. *Cost* is the rough number of native operations for an element. A *seam* is a call of NumPy between kernels.

"""
STAR = """\
One program serves every size. A star marks what is traced anew for each: NumPy tells the shape of its result, or Python
loops over its parts. `f.explain()` says so at the guard."""


def operand_count(op: Op) -> int:
    """Of a pointwise or reduction row."""
    if isinstance(op.form, Reduction):
        return 1
    assert isinstance(op.form, Pointwise)
    names = inspect.signature(op.form.scalar).parameters
    return len([p for p in names if p not in ("b", "dtype", "name", "reason", "is_log")])


KEYED = {
    "threefry": ("key and counter of uint", "uint32 or uint64, as asked"),
    "random_gamma": ("key and counter of uint, float32, float64", "that of the parameter"),
    "random_poisson": ("key and counter of uint, float64", "float64"),
    "random_binomial": ("key and counter of uint, float64", "float64"),
}
"""Kinds of operands and of results of rows that take a key."""


def result_dtype(op: Op, name: str) -> str | None:
    """The dtype of the result for operands of this one, None where the row refuses it."""
    operand = ArrayType(np.dtype(name), (4,))
    types = [operand] * operand_count(op)
    if op.name == "where":
        types[0] = ArrayType(np.dtype(np.bool_), (4,))
    if op.name == "required":
        types[1] = ArrayType(np.dtype(np.int64), (4,))
    params = {"axes": (0,), "keepdims": False} if isinstance(op.form, Reduction) else {}
    if op.name in ("astype", "bitcast"):
        return None if op.name == "bitcast" and operand.dtype.kind == "c" else "as asked"
    try:
        (result,) = op.infer(types, Params(**params))
    except TenferroError:
        return None
    return "same" if result.dtype == operand.dtype else str(result.dtype.name)


def dtypes_text(op: Op) -> tuple[str, str]:
    """Kinds of operands and of results: ``float, complex`` → ``same, real part's``."""
    if op.name in KEYED:
        return KEYED[op.name]
    results: dict[str, list[str]] = {}
    for kind, names in KINDS.items():
        found = {result_dtype(op, n) for n in names}
        if found == {None}:
            continue
        assert None not in found, f"{op.name}: only some dtypes of kind {kind}; the page needs a finer column"
        text = "its real dtype" if kind == "complex" and found == {"float32", "float64"} else str(min(map(str, found)))
        results.setdefault(text, []).append(kind)
    if len(results) == 1:
        ((result, kinds),) = results.items()
        return ", ".join(kinds), result
    accepted = ", ".join(k for kinds in results.values() for k in kinds)
    return accepted, "; ".join(f"{', '.join(kinds)}: {result}" for result, kinds in results.items())


CONTROL = {
    "scan": ("body", "carry", "walked", "length", "reverse", "shapes"),
    "while": ("condition", "body", "carry", "shapes"),
    "cond": ("branches", "shapes"),
    **dict.fromkeys(
        ("pure_callback", "io_callback", "debug_callback", "check"),
        ("call", "dtypes", "shapes", "lanes", "extents", "method"),
    ),
}
"""Parameters of rows whose references take any."""


def parameters(op: Op) -> str:
    names: Sequence[str] = CONTROL.get(op.name) or [
        p.name for p in inspect.signature(op.reference).parameters.values() if p.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    return ", ".join(f"`{n}`" for n in names)


def lowered_to(op: Op) -> str:
    match op.form:
        case Pointwise():
            return "pointwise"
        case Reduction(kind=kind):
            return f"reduction, {kind}"
        case View():
            return "index map, or a view of memory"
        case Indexed(kind=kind):
            return "loads through an index array" if kind == "gather" else "loads with windows"
        case Update():
            return "a store into a box, in place where nobody else reads the array"
        case Contraction():
            return "matrix product"
        case Library(runtime_extents=extents):
            return "seam; the result's size is known when it has run" if extents else "seam"
        case Control():
            return "its bodies, in turn or one of them"
        case Collective():
            return "a node of its own, where engines meet"
        case Host():
            return "a Python function of the user's"
        case Extension():
            return "what its family's module brings"
        case _:
            assert_never(op.form)


def pointwise_table(ops: Sequence[Op]) -> list[str]:
    lines = ["| op | operands | dtypes | result | cost | checked |", "| --- | --- | --- | --- | --- | --- |"]
    for op in ops:
        assert isinstance(op.form, Pointwise)
        accepted, result = dtypes_text(op)
        check = (op.form.check or "").replace("_", " ")
        lines.append(f"| `{op.name}` | {operand_count(op)} | {accepted} | {result} | {op.form.cost} | {check} |")
    return lines


def reduction_table(ops: Sequence[Op]) -> list[str]:
    lines = ["| op | lowered to | dtypes | result |", "| --- | --- | --- | --- |"]
    for op in ops:
        accepted, result = dtypes_text(op)
        lines.append(f"| `{op.name}` | {lowered_to(op)} | {accepted} | {result} |")
    return lines


def other_table(ops: Sequence[Op]) -> list[str]:
    lines = ["| op | lowered to | parameters |", "| --- | --- | --- |"]
    return lines + [f"| `{op.name}` | {lowered_to(op)} | {parameters(op)} |" for op in ops]


DERIVATIVES = """\
What transformations make of each row. *rule*: other rows, written in the table. *0*: the derivative is 0 wherever there
is one. *none*: there is none; the number names the reason below. A transpose belongs to rows that are linear in some of
their operands; derivatives of all others are made of such rows."""
BESIDE = """\
Rows that programs on disk do not name: calls of Python functions of the user's, and marks, which tell transformations
something, compute nothing, and are gone when a program is finished."""


def rule_text(rule: object, reasons: dict[str, int]) -> str:
    """``rule``, ``0 ¹`` or ``none ²``, with the number of the reason."""
    if not isinstance(rule, Absent | Constant):
        return "rule"
    number = reasons.setdefault(rule.reason, len(reasons) + 1)
    return f"{'0' if isinstance(rule, Constant) else 'none'} ({number})"


def derivative_table(ops: Sequence[Op]) -> list[str]:
    reasons: dict[str, int] = {}
    lines = ["| op | jvp | transpose | batch |", "| --- | --- | --- | --- |"]
    for op in ops:
        jvp, transpose, batch = (rule_text(rule, reasons) for rule in (op.jvp, op.transpose, op.batch))
        lines.append(f"| `{op.name}` | {jvp} | {transpose} | {batch} |")
    lines.append("")
    return lines + [f"{number}. {reason}" for reason, number in reasons.items()]


def rows_of(family: ModuleType) -> list[Op]:
    return [op for op in vars(family).values() if isinstance(op, Op)]


def page() -> str:
    pointwise = [op for op in OPS.values() if isinstance(op.form, Pointwise)]
    reductions = [op for op in OPS.values() if isinstance(op.form, Reduction)]
    others = [op for op in OPS.values() if not isinstance(op.form, Pointwise | Reduction)]
    beside = [*rows_of(host), *rows_of(marks)]
    named = [name for name in sorted(API) if hasattr(np, name)]
    functions = ", ".join(f"`{name}`{'*' * (name in PER_SIZE)}" for name in named)
    functions += ", `lib.stride_tricks.sliding_window_view`"
    parts = [
        ["## Pointwise", "", *pointwise_table(pointwise)],
        ["## Reductions", "", *reduction_table(reductions)],
        ["## Layout and library", "", *other_table(others)],
        ["## Derivatives and batches", "", DERIVATIVES, "", *derivative_table(list(OPS.values()))],
        ["## Beside the table", "", BESIDE, "", *other_table(rows_of(host)), "", *derivative_table(beside)],
        ["## NumPy functions that trace", "", STAR, "", functions],
        ["## What they refuse", "", *refused_table()],
    ]
    return INTRODUCTION + "\n\n".join("\n".join(p) for p in parts) + "\n"


def refused_table() -> list[str]:
    named = [", ".join(f"`{n}`" for n in key.split(", ")) if " and " not in key else key for key in REFUSED]
    lines = ["Anything refused is named in the error. Beside what the tables above say of dtypes:", ""]
    lines += ["| function | refused |", "| --- | --- |"]
    return lines + [f"| {key} | {text} |" for key, text in zip(named, REFUSED.values(), strict=True)]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="print the differences and leave the page")
    asked = parser.parse_args(arguments)
    made = page()
    if not asked.check:
        PAGE.write_text(made, encoding="utf-8")
        return 0
    found = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    print(
        "\n".join(difflib.unified_diff(found.splitlines(), made.splitlines(), "docs/ops.md", "the table", lineterm=""))
    )
    return 0 if found == made else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
