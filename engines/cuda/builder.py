"""Scalar expansions as CUDA C: in go ``Val`` values, out come statements, one lane per thread.

Bits equal those of the LLVM builder: every operation rounds as IEEE says, fma only where it is asked for (the texts are
compiled with ``prelude.OPTIONS``), integers wrap by way of unsigned arithmetic. float16 is its bits in an ``unsigned
short``; it is converted by one instruction and takes part in nothing else. bool is ``bool`` in values and a byte in
memory.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import field

import numpy as np

from tenferro.engines.cuda.code import Code
from tenferro.tracer.records import dataclass
from tenferro.tracer.scalar.builder import BOOL, F16, F32, F64, Builder, CallSize, Dtype, Values


@dataclass(frozen=True, slots=True)
class Val:
    """The name of a C variable, or the text of a constant."""

    text: str
    dtype: Dtype


_INTEGERS = {1: "char", 2: "short", 4: "int", 8: "long long"}
_FLOATS = {2: "unsigned short", 4: "float", 8: "double"}


def c_type(dtype: Dtype) -> str:
    """The C type of a value."""
    match dtype.kind:
        case "b":
            return "bool"
        case "i":
            return "signed char" if dtype.itemsize == 1 else _INTEGERS[dtype.itemsize]
        case "u":
            return f"unsigned {_INTEGERS[dtype.itemsize]}"
        case _:
            return _FLOATS[dtype.itemsize]


def wrapping_type(dtype: Dtype) -> str:
    """The unsigned C type that integer arithmetic of ``dtype`` is done in: promotion to int would overflow."""
    return "unsigned long long" if dtype.itemsize == 8 else "unsigned"


def constant_text(value: float, dtype: Dtype) -> str:
    """One element of ``dtype``, floats exactly."""
    match dtype.kind:
        case "b":
            return "true" if value else "false"
        case "i" | "u":
            return _integer_text(int(value), dtype)
        case _:
            return _float_text(value, dtype)


def _integer_text(value: int, dtype: Dtype) -> str:
    bits = 8 * dtype.itemsize
    value %= 1 << bits
    if dtype.kind == "i" and value >> (bits - 1):
        value -= 1 << bits
    suffix = ("u" if dtype.kind == "u" else "") + ("ll" if bits == 64 else "")
    if value == -(1 << (bits - 1)) and bits >= 32:
        text = f"({value + 1}{suffix} - 1)"  # C has no literal for it
    else:
        text = f"({value}{suffix})" if value < 0 else f"{value}{suffix}"
    return text if bits >= 32 else f"(({c_type(dtype)}){text})"


def _float_text(value: float, dtype: Dtype) -> str:
    with np.errstate(over="ignore"):
        rounded = np.asarray(value, dtype)
    if dtype == F16:
        return f"((unsigned short)0x{int(rounded.view(np.uint16)):04x})"
    if np.isfinite(rounded):
        text = float(rounded).hex() + ("f" if dtype == F32 else "")
        return f"({text})" if text.startswith("-") else text
    if dtype == F32:
        return f"__int_as_float(0x{int(rounded.view(np.uint32)):08x})"
    return f"__longlong_as_double(0x{int(rounded.view(np.uint64)):016x}ll)"


def short_name(dtype: Dtype) -> str:
    return f"{dtype.kind}{8 * dtype.itemsize}"


@dataclass
class Parts:
    """What kernels of one module share, by name: constant tables and functions. Equal names have equal texts, so that
    the parts of many kernels may be put into one module."""

    tables: dict[str, str] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)
    results: dict[str, Values] = field(default_factory=dict)

    def table(self, values: tuple[float, ...], dtype: Dtype) -> str:
        """The name of a constant array."""
        items = ", ".join(constant_text(v, dtype) for v in values)
        name = f"tn_table_{hashlib.sha256(f'{dtype.str} {items}'.encode()).hexdigest()[:12]}"
        # Not __constant__ memory, where lanes that read different places wait for one another.
        self.tables.setdefault(name, f"static __device__ const {c_type(dtype)} {name}[] = {{{items}}};\n")
        return name


class CudaBuilder(Builder):
    """Writes into ``code``."""

    def __init__(self, parts: Parts, code: Code) -> None:
        self.parts = parts
        self.code = code

    def emit(self, text: str, dtype: Dtype) -> Val:
        return Val(self.code.let(c_type(dtype), text), dtype)

    def const(self, value: float, dtype: Dtype) -> Val:
        return Val(constant_text(value, dtype), dtype)

    def _wrapped(self, text: str, dtype: Dtype) -> Val:
        return self.emit(f"({c_type(dtype)})({text})", dtype)

    def _arithmetic(self, sign: str, x: Val, y: Val) -> Val:
        if x.dtype == F16:
            raise TypeError(f"{sign}: dtype float16; widen it first")
        if x.dtype.kind == "f":
            return self.emit(f"{x.text} {sign} {y.text}", x.dtype)
        wide = wrapping_type(x.dtype)
        return self._wrapped(f"({wide}){x.text} {sign} ({wide}){y.text}", x.dtype)

    def add(self, x: Val, y: Val) -> Val:
        return self._arithmetic("+", x, y)

    def sub(self, x: Val, y: Val) -> Val:
        return self._arithmetic("-", x, y)

    def mul(self, x: Val, y: Val) -> Val:
        return self._arithmetic("*", x, y)

    def div(self, x: Val, y: Val) -> Val:
        if x.dtype.kind != "f":
            raise TypeError(f"div: dtype {x.dtype}; integers have no native division here")
        return self.emit(f"{_by_size(x.dtype, '__fdiv_rn', '__ddiv_rn')}({x.text}, {y.text})", x.dtype)

    def fma(self, x: Val, y: Val, z: Val) -> Val:
        return self.emit(f"{_by_size(x.dtype, '__fmaf_rn', '__fma_rn')}({x.text}, {y.text}, {z.text})", x.dtype)

    def neg(self, x: Val) -> Val:
        if x.dtype == F16:
            return self._wrapped(f"{x.text} ^ 0x8000", F16)
        if x.dtype.kind == "f":
            return self.emit(f"tn_neg({x.text})", x.dtype)
        return self.sub(self.const(0, x.dtype), x)

    def abs(self, x: Val) -> Val:
        if x.dtype == F16:
            return self._wrapped(f"{x.text} & 0x7fff", F16)
        if x.dtype.kind == "f":
            return self.emit(f"tn_abs({x.text})", x.dtype)
        return x if x.dtype.kind == "u" else self.select(self.lt(x, self.const(0, x.dtype)), self.neg(x), x)

    def _function(self, name: str, *args: Val) -> Val:
        """A function of C that is exact, in the form of its operands' dtype."""
        full = _by_size(args[0].dtype, name + "f", name)
        return self.emit(f"{full}({', '.join(a.text for a in args)})", args[0].dtype)

    def sqrt(self, x: Val) -> Val:
        return self.emit(f"{_by_size(x.dtype, '__fsqrt_rn', '__dsqrt_rn')}({x.text})", x.dtype)

    def floor(self, x: Val) -> Val:
        return self._function("floor", x)

    def ceil(self, x: Val) -> Val:
        return self._function("ceil", x)

    def trunc(self, x: Val) -> Val:
        return self._function("trunc", x)

    def rint(self, x: Val) -> Val:
        return self._function("rint", x)

    def copysign(self, x: Val, y: Val) -> Val:
        if x.dtype == F16:
            return self._wrapped(f"({x.text} & 0x7fff) | ({y.text} & 0x8000)", F16)
        return self._function("copysign", x, y)

    def _compare(self, sign: str, x: Val, y: Val) -> Val:
        if x.dtype == F16:
            raise TypeError(f"{sign}: dtype float16; widen it first")
        return self.emit(f"{x.text} {sign} {y.text}", BOOL)

    def lt(self, x: Val, y: Val) -> Val:
        return self._compare("<", x, y)

    def le(self, x: Val, y: Val) -> Val:
        return self._compare("<=", x, y)

    def eq(self, x: Val, y: Val) -> Val:
        return self._compare("==", x, y)

    def ne(self, x: Val, y: Val) -> Val:
        return self._compare("!=", x, y)

    def select(self, condition: Val, x: Val, y: Val) -> Val:
        return self.emit(f"{condition.text} ? {x.text} : {y.text}", x.dtype)

    def and_(self, x: Val, y: Val) -> Val:
        return self._wrapped(f"{x.text} & {y.text}", x.dtype)

    def or_(self, x: Val, y: Val) -> Val:
        return self._wrapped(f"{x.text} | {y.text}", x.dtype)

    def xor(self, x: Val, y: Val) -> Val:
        return self._wrapped(f"{x.text} ^ {y.text}", x.dtype)

    def not_(self, x: Val) -> Val:
        return self.emit(f"!{x.text}", BOOL) if x.dtype == BOOL else self._wrapped(f"~{x.text}", x.dtype)

    def shl(self, x: Val, n: Val) -> Val:
        return self._wrapped(f"({wrapping_type(x.dtype)}){x.text} << {n.text}", x.dtype)

    def shr(self, x: Val, n: Val) -> Val:
        return self._wrapped(f"{x.text} >> {n.text}", x.dtype)

    def _bits(self, x: Val) -> str:
        """The value's bits, with zeros above them, in an unsigned type of 4 or 8 bytes."""
        return f"({wrapping_type(x.dtype)})({c_type(np.dtype(f'u{x.dtype.itemsize}'))}){x.text}"

    def popcount(self, x: Val) -> Val:
        return self._wrapped(f"{_by_width(x.dtype, '__popc', '__popcll')}({self._bits(x)})", x.dtype)

    def clz(self, x: Val) -> Val:
        extra = max(0, 32 - 8 * x.dtype.itemsize)
        return self._wrapped(f"{_by_width(x.dtype, '__clz', '__clzll')}({self._bits(x)}) - {extra}", x.dtype)

    def convert(self, x: Val, dtype: Dtype) -> Val:
        if x.dtype == dtype:
            return x
        _check_conversion(x.dtype, dtype)
        if x.dtype == F16:
            return self.emit(f"tn_from_half({x.text})", F32)
        if dtype == F16:
            one = "0x3c00"
            text = f"{x.text} ? {one} : 0" if x.dtype == BOOL else f"tn_to_half({x.text})"
            return self.emit(text, F16)
        return self.emit(f"({c_type(dtype)}){x.text}", dtype)

    def bitcast(self, x: Val, dtype: Dtype) -> Val:
        if x.dtype.itemsize != dtype.itemsize:
            raise TypeError(f"bitcast: {x.dtype} to {dtype}; sizes must be equal")
        text = x.text
        if x.dtype in (F32, F64):
            text = f"{_by_size(x.dtype, '__float_as_int', '__double_as_longlong')}({text})"
        if dtype in (F32, F64):
            signed = "int" if dtype == F32 else "long long"
            return self.emit(f"{_by_size(dtype, '__int_as_float', '__longlong_as_double')}(({signed}){text})", dtype)
        return self._wrapped(text, dtype)

    def lookup(self, table: tuple[float, ...], dtype: Dtype, index: Val) -> Val:
        return self.emit(f"{self.parts.table(table, dtype)}[{index.text}]", dtype)

    def if_any(self, condition: Val, slow: Callable[[], Values], fast: Callable[[], Values]) -> Values:
        """Each thread by itself: it is defined not to matter."""
        found: list[tuple[list[str], Values]] = []
        for body in (slow, fast):
            kept: list[Values] = []
            lines = self.code.captured(lambda body=body, kept=kept: kept.append(body()))  # type: ignore[misc]
            found.append((lines, kept[0]))
        (slow_lines, slow_values), (fast_lines, fast_values) = found
        names = [Val(self.code.fresh(), v.dtype) for v in _flatten(slow_values)]
        for v in names:
            self.code.do(f"{c_type(v.dtype)} {v.text};")
        for head, lines, values in (
            (f"if ({condition.text})", slow_lines, slow_values),
            ("else", fast_lines, fast_values),
        ):
            with self.code.block(head):
                self.code.lines += lines
                for name, v in zip(names, _flatten(values), strict=True):
                    if name.dtype != v.dtype:
                        raise TypeError(f"if_any: the paths give {name.dtype} and {v.dtype}; they must be equal")
                    self.code.do(f"{name.text} = {v.text};")
        return tuple(names) if isinstance(slow_values, tuple) else names[0]

    def while_any(
        self, condition: Callable[..., Val], body: Callable[..., Sequence[Val]], *values: Val
    ) -> tuple[Val, ...]:
        names = [Val(self.code.fresh(), v.dtype) for v in values]
        for name, v in zip(names, values, strict=True):
            self.code.do(f"{c_type(v.dtype)} {name.text} = {v.text};")
        with self.code.block("while (true)"):
            self.code.do(f"if (!{condition(*names).text}) break;")
            # A new value may be another variable of the loop: read all before the first is written.
            after = [self.emit(v.text, v.dtype) for v in body(*names)]
            for name, v in zip(names, after, strict=True):
                self.code.do(f"{name.text} = {v.text};")
        return tuple(names)

    def call(self, name: str, function: Callable[..., Values], *args: Val, size: CallSize = "usual") -> Values:
        symbol = re.sub(r"\W", "_", "_".join(["tn", name, *(short_name(a.dtype) for a in args)]))
        if symbol not in self.parts.results:
            self.parts.results[symbol] = self._outline(symbol, function, args, size)
        result = self.parts.results[symbol]
        operands = ", ".join(a.text for a in args)
        if isinstance(result, Val):
            return self.emit(f"{symbol}({operands})", result.dtype)
        whole = self.code.let(f"{symbol}_result", f"{symbol}({operands})")
        return tuple(self.emit(f"{whole}.r{i}", v.dtype) for i, v in enumerate(result))

    def _outline(self, symbol: str, function: Callable[..., Values], args: Sequence[Val], size: CallSize) -> Values:
        """Write a device function of its own; returns what it gives. Those it calls are written first."""
        inner = CudaBuilder(self.parts, Code())
        params = [Val(f"a{k}", a.dtype) for k, a in enumerate(args)]
        result = function(inner, *params)
        values = _flatten(result)
        head = ", ".join(f"{c_type(p.dtype)} {p.text}" for p in params)
        kind, before = c_type(values[0].dtype), ""
        if isinstance(result, tuple):
            kind = f"{symbol}_result"
            members = " ".join(f"{c_type(v.dtype)} r{i};" for i, v in enumerate(values))
            before = f"struct {kind} {{ {members} }};\n"
            inner.code.do(f"return {{{', '.join(v.text for v in values)}}};")
        else:
            inner.code.do(f"return {values[0].text};")
        inline = "" if size == "usual" else "__noinline__ "
        text = inner.code.function(f"static __device__ {inline}{kind} {symbol}({head})")
        self.parts.functions[symbol] = before + text
        return result


def _flatten(values: Values) -> list[Val]:
    return list(values) if isinstance(values, tuple) else [values]


def _by_size(dtype: Dtype, single: str, double: str) -> str:
    match dtype.itemsize:
        case 4:
            return single
        case 8:
            return double
        case _:
            raise TypeError(f"{double}: dtype {dtype}; widen it first")


def _by_width(dtype: Dtype, narrow: str, wide: str) -> str:
    return wide if dtype.itemsize == 8 else narrow


def _check_conversion(source: Dtype, target: Dtype) -> None:
    """TypeError for what the contract of ``convert`` leaves out."""
    if target == BOOL:
        raise TypeError(f"convert: {source} to {target} is not native")
    if source == F16 and target != F32 or target == F16 and source not in (F32, BOOL):
        raise TypeError(f"convert: {source} to {target}; float16 goes by way of float32")
