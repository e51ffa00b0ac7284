"""Elements between memory and vectors: loads, stores, splats, gathers.

In memory a bool is a byte and a complex number two neighbouring components; in a value a bool is an i1 and a complex
number a ``Complex`` pair. Nothing here decides what is computed.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from tenferro.engines.cpu.code import Code
from tenferro.engines.cpu.vector_builder import ModuleText, Vec, VectorBuilder
from tenferro.tracer.scalar.builder import Complex

Value: TypeAlias = Any  # Vec, or Complex of two Vecs
BOOL = np.dtype(np.bool_)
INT64 = np.dtype(np.int64)

_TYPES = {"f2": "half", "f4": "float", "f8": "double"}


def component(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of one component of a complex number, else the dtype itself."""
    return np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype


def memory_type(dtype: np.dtype[Any]) -> str:
    """The LLVM type of one real element in memory."""
    if dtype.kind == "f":
        return _TYPES[f"f{dtype.itemsize}"]
    return f"i{8 * dtype.itemsize}"


def clear(module: ModuleText, code: Code, target: str, count: str | int) -> None:
    """So many bytes of zeros, in the place of what the memory held before: lanes behind the end of a row are computed
    on and thrown away, but a subnormal number (as addresses are, read as numbers) takes some processors two hundred
    cycles an operation."""
    module.declare("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
    code.do(f"call void @llvm.memset.p0.i64(ptr {target}, i8 0, i64 {count}, i1 false)")


def vector(lanes: int, element: str) -> str:
    return element if lanes == 1 else f"<{lanes} x {element}>"


def mask_text(indices: list[int]) -> str:
    return "<" + ", ".join(f"i32 {i}" for i in indices) + ">"


def shuffle(code: Code, a: str, b: str, lanes: int, element: str, indices: list[int]) -> str:
    source = f"<{lanes} x {element}>"
    return code.emit(f"shufflevector {source} {a}, {source} {b}, <{len(indices)} x i32> {mask_text(indices)}")


def load_real(code: Code, pointer: str, lanes: int, dtype: np.dtype[Any]) -> str:
    """``lanes`` neighbouring real elements; bools arrive as i1."""
    element = memory_type(dtype)
    loaded = code.emit(f"load {vector(lanes, element)}, ptr {pointer}, align {dtype.itemsize}")
    if dtype == BOOL:
        return code.emit(f"icmp ne {vector(lanes, 'i8')} {loaded}, {'0' if lanes == 1 else 'zeroinitializer'}")
    return loaded


def load(code: Code, pointer: str, lanes: int, dtype: np.dtype[Any]) -> Value:
    """``lanes`` neighbouring elements at ``pointer``."""
    if dtype.kind != "c":
        return Vec(load_real(code, pointer, lanes, dtype), dtype)
    part = component(dtype)
    if lanes == 1:
        re = load_real(code, pointer, 1, part)
        im = load_real(code, code.at(pointer, part.itemsize), 1, part)
        return Complex(Vec(re, part), Vec(im, part))
    both = code.emit(f"load <{2 * lanes} x {memory_type(part)}>, ptr {pointer}, align {part.itemsize}")
    return Complex(*(Vec(_every_other(code, both, lanes, part, k), part) for k in (0, 1)))


def load_scalar(code: Code, pointer: str, dtype: np.dtype[Any]) -> Vec:
    """One real element at ``pointer``."""
    return Vec(load_real(code, pointer, 1, dtype), dtype)


def _every_other(code: Code, both: str, lanes: int, part: np.dtype[Any], first: int) -> str:
    return shuffle(code, both, "poison", 2 * lanes, memory_type(part), list(range(first, 2 * lanes, 2)))


def store(code: Code, pointer: str, value: Value, lanes: int, dtype: np.dtype[Any], hint: str = "") -> None:
    """Write ``lanes`` neighbouring elements at ``pointer``; ``hint`` is metadata such as ``!nontemporal``."""
    if dtype.kind == "c":
        part = component(dtype)
        element = memory_type(part)
        if lanes == 1:
            code.do(f"store {element} {value.re.text}, ptr {pointer}, align {part.itemsize}")
            code.do(f"store {element} {value.im.text}, ptr {code.at(pointer, part.itemsize)}, align {part.itemsize}")
            return
        order = [k // 2 + (k % 2) * lanes for k in range(2 * lanes)]
        both = shuffle(code, value.re.text, value.im.text, lanes, element, order)
        code.do(f"store <{2 * lanes} x {element}> {both}, ptr {pointer}, align {part.itemsize}{hint}")
        return
    text = value.text
    if dtype == BOOL:
        text = code.emit(f"zext {vector(lanes, 'i1')} {text} to {vector(lanes, 'i8')}")
    align = 64 if hint else dtype.itemsize
    code.do(f"store {vector(lanes, memory_type(dtype))} {text}, ptr {pointer}, align {align}{hint}")


def value_type(lanes: int, dtype: np.dtype[Any]) -> str:
    """The SSA type of a real value: bools are i1."""
    return vector(lanes, "i1" if dtype == BOOL else memory_type(dtype))


def splat_text(code: Code, scalar: str, lanes: int, element: str) -> str:
    """A scalar in every lane."""
    if lanes == 1:
        return scalar
    kind = f"<{lanes} x {element}>"
    first = code.emit(f"insertelement {kind} poison, {element} {scalar}, i64 0")
    return code.emit(f"shufflevector {kind} {first}, {kind} poison, <{lanes} x i32> zeroinitializer")


def splat(code: Code, value: Value, lanes: int) -> Value:
    """A scalar value in every lane."""
    if isinstance(value, Complex):
        return Complex(splat(code, value.re, lanes), splat(code, value.im, lanes))
    return Vec(splat_text(code, value.text, lanes, value_type(1, value.dtype)), value.dtype)


def spread(module: ModuleText, code: Code, value: Value, lanes: int) -> Value:
    """``splat`` by a function of the module: a call is what LLVM's quick instruction selection takes, a shuffle not."""
    if isinstance(value, Complex):
        return Complex(spread(module, code, value.re, lanes), spread(module, code, value.im, lanes))
    if value.dtype == BOOL:
        return splat(code, value, lanes)
    element, kind = value_type(1, value.dtype), value_type(lanes, value.dtype)
    name = f"@spread_{value.dtype.name}"
    if (name,) not in module.outlined:
        module.outlined[(name,)] = (name, None)
        inner = Code()
        inner.do(f"ret {kind} {splat_text(inner, '%x', lanes, element)}")
        module.functions.append(inner.function(f"define internal {kind} {name}({element} %x) noinline nounwind"))
    return Vec(code.emit(f"call {kind} {name}({element} {value.text})"), value.dtype)


def lane_numbers(lanes: int, element: str = "i64") -> str:
    if lanes == 1:
        return "0"
    return "<" + ", ".join(f"{element} {k}" for k in range(lanes)) + ">"


def lanes_below(code: Code, count: str, lanes: int) -> str:
    """The mask of lanes whose number is below the i64 ``count`` (compared in 32 bits: half the registers)."""
    if lanes == 1:
        return code.compare("sgt", count, 0)
    few = code.emit(f"trunc i64 {code.minimum(count, lanes)} to i32")
    limit = splat_text(code, few, lanes, "i32")
    return code.emit(f"icmp slt <{lanes} x i32> {lane_numbers(lanes, 'i32')}, {limit}")


def gather(
    code: Code, builder: VectorBuilder, base: str, offsets: str, mask: str, lanes: int, dtype: np.dtype[Any]
) -> Value:
    """The element at ``base + offsets`` bytes per lane, 0 where the mask is false (nothing is read there)."""
    if dtype.kind == "c":
        part = component(dtype)
        re = gather(code, builder, base, offsets, mask, lanes, part)
        im = gather(code, builder, code.at(base, part.itemsize), offsets, mask, lanes, part)
        return Complex(re, im)
    element = memory_type(dtype)
    pointers = code.emit(f"getelementptr i8, ptr {base}, {vector(lanes, 'i64')} {offsets}")
    kind, suffix = vector(lanes, element), f"v{lanes}{_suffix(element)}"
    name = f"@llvm.masked.gather.{suffix}.v{lanes}p0"
    builder.module.declare(f"declare {kind} {name}(<{lanes} x ptr>, <{lanes} x i1>, {kind})")
    got = code.emit(
        f"call {kind} {name}(<{lanes} x ptr> align {dtype.itemsize} {pointers}, <{lanes} x i1> {mask}, "
        f"{kind} zeroinitializer)"
    )
    if dtype == BOOL:
        got = code.emit(f"icmp ne {kind} {got}, zeroinitializer")
    return Vec(got, dtype)


def masked_load(code: Code, builder: VectorBuilder, pointer: str, mask: str, lanes: int, dtype: np.dtype[Any]) -> Value:
    """Neighbouring real elements, 0 where the mask is false (nothing is read there)."""
    element = memory_type(dtype)
    kind = vector(lanes, element)
    name = f"@llvm.masked.load.v{lanes}{_suffix(element)}.p0"
    builder.module.declare(f"declare {kind} {name}(ptr, <{lanes} x i1>, {kind})")
    got = code.emit(
        f"call {kind} {name}(ptr align {dtype.itemsize} {pointer}, <{lanes} x i1> {mask}, {kind} zeroinitializer)"
    )
    if dtype == BOOL:
        got = code.emit(f"icmp ne {kind} {got}, zeroinitializer")
    return Vec(got, dtype)


def _suffix(element: str) -> str:
    return {"half": "f16", "float": "f32", "double": "f64"}.get(element, element)


def any_lane(code: Code, mask: str, lanes: int) -> str:
    """Whether any lane of a mask is true."""
    if lanes == 1:
        return mask
    bits = code.emit(f"bitcast <{lanes} x i1> {mask} to i{lanes}")
    return code.emit(f"icmp ne i{lanes} {bits}, 0")
