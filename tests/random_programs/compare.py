"""A random program run in every way: a ``RandomProgram`` in, what disagrees out.

NumPy's values count (within the program's own error); among tenferro's ways of running it, bits do.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import tenferro as tn
import tenferro.numpy as tnp
from tests.random_programs.generator import RandomProgram
from tests.running import executable
from tests.table.agreement import bits, same_type, values

Array = np.ndarray[Any, Any]


def _far(actual: Any, expected: Any, error: float, scale: float) -> str | None:
    """Equal values where ``error`` is 0, else within 200 ``error`` of the largest magnitude met on the way."""
    a, e = np.asarray(actual), np.asarray(expected)
    if error == 0 or a.dtype.kind not in "fc":
        return values(a, e)
    wrong = same_type(a, e)
    if wrong:
        return wrong
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        off = np.abs(a.astype(wide) - e.astype(wide))
    bad = ~(off <= 200 * error * scale)
    return f"off by {off.max()} at magnitude {scale}" if bad.any() else None


def _scale(program: RandomProgram, inputs: Sequence[Array]) -> float:
    """1 + the largest magnitude of any float that the program computes on these inputs."""
    scope: dict[str, Any] = {"np": np, **{a.name: x for a, x in zip(program.arguments, inputs, strict=True)}}
    largest = 0.0
    for line in program.body:
        exec(line, scope)
        for value in list(scope.values()):
            if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "fc" and value.size:
                largest = max(largest, float(np.max(np.abs(value.astype(np.complex128)))))
    return 1 + largest


def _ways(program: RandomProgram, jitted: Callable[..., Any], inputs: Sequence[Array]) -> dict[str, Callable[[], Any]]:
    """Everything that must give the bits of a polymorphic jitted call on NumPy arrays."""

    def threads() -> Any:
        with tn.threads(3):
            return jitted(*inputs)

    return {
        "fresh": lambda: tn.jit(program.function())(*inputs),
        "fresh, through tenferro.numpy": lambda: tn.jit(program.function(tnp))(*inputs),
        "tenferro arrays": lambda: jitted(*(tnp.asarray(x) for x in inputs)),
        "eager": lambda: program.function(tnp)(*(tnp.asarray(x) for x in inputs)),
        "again, by then a native call": lambda: [jitted(*inputs) for _ in range(4)][-1],
        "3 threads": threads,
    }


def _reference(program: RandomProgram, jitted: Any, inputs: Sequence[Array]) -> list[Array] | None:
    """The reference engine on the traced program; None where the trace itself made arrays, which only it binds, or
    results."""
    traced = jitted.trace(*inputs)
    if any(i.kind != "argument" for i in traced.inputs) or len(traced.outputs) != len(program.results):
        return None
    return executable(traced, "reference:0").run([np.asarray(x) for x in inputs]).outputs


def disagreements(program: RandomProgram) -> list[str]:
    """One line for each way of running that is wrong, at each size."""
    found: list[str] = []
    jitted = tn.jit(program.function())
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", tn.RecompileWarning)
        for sizes in program.sizes:
            inputs = program.inputs(sizes)
            expected = program.function()(*program.inputs(sizes))
            scale = _scale(program, program.inputs(sizes))
            found += [f"at {dict(sizes)}: {p}" for p in _at_size(program, jitted, inputs, expected, scale)]
    return found


def _at_size(
    program: RandomProgram, jitted: Any, inputs: Sequence[Array], expected: Sequence[Any], scale: float
) -> list[str]:
    found = []
    try:
        polymorphic = jitted(*inputs)
    except Exception as error:  # any refusal or crash is a finding, and the other programs still run
        return [f"jitted raises {type(error).__name__}: {error}"]
    for name, a, e, tolerance in zip(program.results, polymorphic, expected, program.errors, strict=True):
        problem = _far(a, e, tolerance, scale)
        if problem is None and type(a) is not type(e) and np.ndim(e):  # rank 0 always comes back as a NumPy scalar
            problem = f"type {type(a).__name__}; NumPy gives {type(e).__name__}"
        if problem:
            found.append(f"{name} jitted against NumPy: {problem}")
    for way, run in _ways(program, jitted, inputs).items():
        try:
            other = run()
        except Exception as error:
            found.append(f"{way} raises {type(error).__name__}: {error}")
            continue
        for name, a, b in zip(program.results, other, polymorphic, strict=True):
            problem = bits(np.asarray(a), np.asarray(b))
            if problem:
                found.append(f"{name} {way} against jitted: {problem}")
    found += _at_other_values(program, jitted, inputs)
    reference = _reference(program, jitted, inputs)
    for name, a, e, tolerance in zip(
        program.results, polymorphic, reference or polymorphic, program.errors, strict=True
    ):
        problem = _far(np.asarray(a), np.asarray(e), tolerance, scale)
        if problem:
            found.append(f"{name} jitted against the reference engine: {problem}")
    return found


def _at_other_values(program: RandomProgram, jitted: Any, inputs: Sequence[Array]) -> list[str]:
    """The same elements in another order, of which masks select others: what calls before them have left behind does
    not count."""
    found = []
    for turn in (1, 2):
        others = [np.roll(x, turn) for x in inputs]
        try:
            expected = tn.jit(program.function())(*others)
        except Exception:  # other indices may pick elements of which there are none
            continue
        for name, a, b in zip(program.results, jitted(*others), expected, strict=True):
            problem = bits(np.asarray(a), np.asarray(b))
            if problem:
                found.append(f"{name} at other values, after calls, against a fresh function: {problem}")
    return found


def shrink(program: RandomProgram) -> RandomProgram:
    """The program with every statement, size and result dropped that it can fail without."""
    changed = True
    while changed:
        changed = False
        for smaller in _smaller(program):
            if _runs(smaller) and disagreements(smaller):
                program, changed = smaller, True
                break
    return program


def _smaller(program: RandomProgram) -> list[RandomProgram]:
    body, results, sizes = program.body, program.results, program.sizes
    found = [replace(program, body=body[:k] + body[k + 1 :]) for k in reversed(range(len(body)))]
    if len(results) > 1:
        found += [
            replace(
                program, results=results[:k] + results[k + 1 :], errors=program.errors[:k] + program.errors[k + 1 :]
            )
            for k in range(len(results))
        ]
    if len(sizes) > 1:
        found += [replace(program, sizes=sizes[:k] + sizes[k + 1 :]) for k in range(len(sizes))]
    return found


def _runs(program: RandomProgram) -> bool:
    try:
        with np.errstate(all="ignore"):
            for sizes in program.sizes:
                program.function()(*program.inputs(sizes))
    except Exception:
        return False
    return True
