"""Kernels compiled for GPUs by NVRTC, without one: every text is legal CUDA C for the oldest and newest devices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest

from tenferro.engines.cuda.prelude import KernelText, module_text
from tests.cuda import cases, nvrtc

pytestmark = pytest.mark.skipif(bool(nvrtc.missing()), reason=nvrtc.missing() or "never")
PER_MODULE = 100
USUAL = (8, 0)


@cache
def _texts() -> tuple[KernelText, ...]:
    found = {k.body: k for group in cases.GROUPS.values() for case in group() for k in case.kernels()}
    return tuple(found.values())


def _compile(texts: Sequence[KernelText], capability: tuple[int, int]) -> list[str]:
    # One after the other: NVRTC 13.0 was seen to spin for ever when two threads compiled.
    modules = [module_text(texts[i : i + PER_MODULE]) for i in range(0, len(texts), PER_MODULE)]
    return [nvrtc.compile_text(text, capability) for text in modules]


def test_texts_compile() -> None:
    texts = _texts() if cases.FULL else _texts()[::3]
    ptx = "".join(_compile(texts, USUAL))
    for text in texts:
        for name in text.entries.values():
            assert f".entry {name}(" in ptx
    # Nothing contracted, flushed or approximated.
    for wrong in ("fma.rn.ftz", ".ftz.", "div.approx", "div.full", "sqrt.approx", "rcp.approx"):
        assert wrong not in ptx


@pytest.mark.parametrize("capability", nvrtc.CAPABILITIES, ids=lambda c: f"{c[0]}.{c[1]}")
def test_capability(capability: tuple[int, int]) -> None:
    if capability not in nvrtc.supported():
        pytest.skip(f"NVRTC {nvrtc.version()} does not compile for {capability[0]}.{capability[1]}")
    texts = _texts()
    chosen = texts if cases.FULL else texts[:: max(1, len(texts) // 30)]
    for module in _compile(chosen, capability):
        assert f".target sm_{capability[0]}{capability[1]}" in module


def test_machine_code_is_made() -> None:
    """The assembler takes what the compiler writes, inline instructions included."""
    names = ("negative", "absolute", "exp", "sum", "take")
    mine = [next(c for c in cases.table() if c.name == name) for name in names]
    mine += [c for c in cases.row_programs() if c.name == "softmax" and c.schedule in ("block", "split column")][:2]
    half = next(c for c in cases.table() if c.name == "negative" and c.operands[0].dtype == "float16")
    texts = [kernel for case in (*mine, half) for kernel in case.kernels()]
    code = nvrtc.machine_code(module_text(texts), USUAL)
    assert all(name.encode() in code for text in texts for name in text.entries.values())


def test_signs_of_nan_are_bits() -> None:
    for name in ("negative", "absolute"):
        case = next(c for c in cases.table() if c.name == name and c.operands[0].dtype == "float32")
        (kernel,) = case.kernels()
        ptx = nvrtc.compile_text(kernel.module, USUAL)
        assert "neg.f" not in ptx and "abs.f" not in ptx


def test_memory_is_known_to_be_global() -> None:
    """Without that every access would ask first which memory it is in; and neighbours move as vectors."""
    add = next(c for c in cases.table() if c.name == "add" and c.operands[0].dtype == "float32")
    (kernel,) = add.kernels()
    ptx = nvrtc.compile_text(kernel.module, USUAL)
    assert "ld.global.v4" in ptx and "st.global.v4" in ptx
    assert not [line for line in ptx.splitlines() if line.strip().startswith(("ld.f", "ld.u", "ld.v", "st.f", "st.v"))]


def test_a_sum_and_a_product_are_not_contracted() -> None:
    text = "__global__ void f(float* x) { x[0] = x[1] * x[2] + x[3]; }"
    assert "fma" not in nvrtc.compile_text(text, USUAL)
    assert "fma" in nvrtc.compile_text(text, USUAL, ("-fmad=true",))


def test_a_wrong_text_is_refused() -> None:
    with pytest.raises(nvrtc.NvrtcError, match="undefined"):
        nvrtc.compile_text("__global__ void f(float* x) { x[0] = y; }", USUAL)
