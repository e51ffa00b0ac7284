"""Elements between memory and values, as C text: addresses are ``char*``, which the compiler knows to be global memory.

In memory a bool is a byte and a complex number two neighbouring components; in a value a complex number is a
``Complex`` pair.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from tenferro.engines.cpu.elements import component
from tenferro.engines.cuda.builder import Val, c_type
from tenferro.engines.cuda.code import Code
from tenferro.tracer.scalar.builder import BOOL, Complex

Value: TypeAlias = Any  # Val, or Complex of two Vals
POINTER = "char*"


def memory_type(dtype: np.dtype[Any]) -> str:
    """The C type of one real element in memory."""
    return "unsigned char" if dtype == BOOL else c_type(dtype)


def parts(dtype: np.dtype[Any]) -> int:
    return 2 if dtype.kind == "c" else 1


def load(code: Code, place: str, dtype: np.dtype[Any], mask: str = "") -> Value:
    """The element at address ``place``; 0 where ``mask`` does not hold, and nothing is read there."""
    part = component(dtype)
    name = code.let(POINTER, place, "at")
    found = []
    for k in range(parts(dtype)):
        text = f"((const {memory_type(part)}*){name})[{k}]"
        if part == BOOL:
            text = f"{text} != 0"
        found.append(Val(code.let(c_type(part), f"{mask} ? {text} : 0" if mask else text), part))
    return Complex(*found) if dtype.kind == "c" else found[0]


def store(code: Code, place: str, value: Value, dtype: np.dtype[Any], mask: str = "") -> None:
    """Write an element at address ``place``, where ``mask`` holds."""
    guard = f"if ({mask}) " if mask else ""
    kind = memory_type(component(dtype))
    values = [value.re, value.im] if isinstance(value, Complex) else [value]
    for k, v in enumerate(values):
        code.do(f"{guard}(({kind}*)({place}))[{k}] = {v.text};")


def from_array(array: str, index: str, dtype: np.dtype[Any]) -> Value:
    """Element ``index`` of a thread's own array of memory elements."""
    part = component(dtype)
    if dtype.kind == "c":
        return Complex(Val(f"{array}[2 * {index}]", part), Val(f"{array}[2 * {index} + 1]", part))
    return Val(f"({array}[{index}] != 0)" if part == BOOL else f"{array}[{index}]", part)


def to_array(code: Code, array: str, index: str, value: Value) -> None:
    if isinstance(value, Complex):
        code.do(f"{array}[2 * {index}] = {value.re.text};")
        code.do(f"{array}[2 * {index} + 1] = {value.im.text};")
        return
    code.do(f"{array}[{index}] = {value.text};")
