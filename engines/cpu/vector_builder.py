"""Scalar expansions as LLVM vector instructions: in go ``Vec`` values, out come lines of LLVM text.

``lanes`` may exceed the machine's width: LLVM splits the vectors. ``lanes == 1`` writes plain scalar code with the same
bits. float16 is ``half`` and bool is ``i1`` in SSA; memory has i8 for bool, which loads and stores convert.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from tenferro.engines.cpu.permute import Permutes, fits, permuted
from tenferro.tracer.op import Op, Pointwise
from tenferro.tracer.records import dataclass
from tenferro.tracer.scalar.builder import BOOL, F16, F64, I64, Builder, CallSize, Complex, Dtype, Values

# Tells block placement that a rare path is rare. The number keeps clear of the metadata of whoever writes the module.
RARE = "!prof !9001"
RARE_METADATA = '!9001 = !{!"branch_weights", i32 1, i32 2000}'

# A compact call loops over this many lanes: one machine vector of 8-byte values on the widest machines.
COMPACT_LANES = 8


@dataclass(frozen=True, slots=True)
class Vec:
    """An SSA name or the text of a constant, without its type."""

    text: str
    dtype: Dtype


def scalar_type(dtype: Dtype) -> str:
    """The LLVM type of one element in SSA."""
    match dtype.kind:
        case "b":
            return "i1"
        case "i" | "u":
            return f"i{8 * dtype.itemsize}"
        case _:
            return {2: "half", 4: "float", 8: "double"}[dtype.itemsize]


def constant_text(value: float, dtype: Dtype) -> str:
    """One element of ``dtype`` as LLVM text, floats as exact hexadecimal."""
    match dtype.kind:
        case "b":
            return "true" if value else "false"
        case "i" | "u":
            return str(int(value))
        case _:
            with np.errstate(over="ignore"):
                rounded = np.asarray(value, dtype)
            if dtype == F16:
                return f"0xH{int(rounded.view(np.uint16)):04X}"
            # LLVM writes float constants with the bits of the double of equal value.
            bits = struct.unpack("<Q", struct.pack("<d", float(rounded)))[0]
            return f"0x{bits:016X}"


@dataclass
class ModuleText:
    """What functions of one module share: declarations, constant tables, outlined expansions.

    ``share`` names the machine that the module is for. Then expansions that are functions of their own are not written
    into the module but into modules of their own, one per expansion, dtypes and lanes; ``shared`` says which symbols
    the module needs, and the text that defines each. Without it they are internal functions of the module.
    ``permutes``: the instructions that the machine has for small tables. ``loads_constants``: arithmetic takes vectors
    of one number from memory, where LLVM's quick instruction selection takes them; as literals it takes none."""

    share: str | None = None
    shared: dict[str, str] = field(default_factory=dict)
    declarations: dict[str, None] = field(default_factory=dict)
    tables: dict[tuple[Any, ...], str] = field(default_factory=dict)
    table_lines: list[str] = field(default_factory=list)
    outlined: dict[tuple[Any, ...], tuple[str, Any]] = field(default_factory=dict)
    functions: list[str] = field(default_factory=list)
    permutes: Permutes = "none"
    loads_constants: bool = False

    def declare(self, line: str) -> None:
        """Adds ``declare …`` once."""
        self.declarations.setdefault(line)

    def table(self, values: tuple[float, ...], dtype: Dtype) -> str:
        """The name of a private constant array."""
        key = (values, dtype.str)
        if key not in self.tables:
            name = self.tables[key] = f"@table{len(self.tables)}"
            element = scalar_type(dtype)
            items = ", ".join(f"{element} {constant_text(v, dtype)}" for v in values)
            self.table_lines.append(
                f"{name} = private unnamed_addr constant [{len(values)} x {element}] [{items}], align 64"
            )
        return self.tables[key]

    def constant(self, kind: str, value: str) -> str:
        """The name of a private constant of an LLVM type."""
        key = (kind, value)
        if key not in self.tables:
            name = self.tables[key] = f"@constant{len(self.tables)}"
            self.table_lines.append(f"{name} = private unnamed_addr constant {kind} {value}, align 32")
        return self.tables[key]

    def text(self, functions: list[str]) -> str:
        """The module: tables, outlined expansions, the given function definitions, declarations."""
        parts = [*self.table_lines, *self.functions, *functions, *self.declarations, RARE_METADATA]
        return "\n".join(parts) + "\n"


@dataclass(frozen=True, slots=True)
class Shared:
    """An expansion with a module of its own: its symbol there, what it gives, the module's text."""

    symbol: str
    result: Values
    text: str


_SHARED: dict[tuple[str, tuple[str, ...], int, Permutes], Shared] = {}


class VectorBuilder(Builder):
    """Emits into ``lines``; ``block`` is the label of the block that the next line goes to."""

    def __init__(self, module: ModuleText, lanes: int, outline: bool = False) -> None:
        self.module = module
        self.lanes = lanes
        self.outline = outline
        self.lines: list[str] = []
        self.block = "entry"
        self._count = 0
        self._allocations = 0
        self._loaded: dict[tuple[str, str], str] = {}  # constants in registers, by block

    def start(self, label: str) -> None:
        """Says that the next line belongs to the block ``label``, which the caller has opened."""
        self.block = label

    def fresh(self) -> str:
        self._count += 1
        return f"%v{self._count}"

    def new_label(self) -> str:
        self._count += 1
        return f"b{self._count}"

    def type_of(self, dtype: Dtype) -> str:
        element = scalar_type(dtype)
        return element if self.lanes == 1 else f"<{self.lanes} x {element}>"

    def emit(self, text: str, dtype: Dtype) -> Vec:
        name = self.fresh()
        self.lines.append(f"  {name} = {text}")
        return Vec(name, dtype)

    def label(self, label: str) -> None:
        """Opens the block ``label``."""
        self.lines.append(f"{label}:")
        self.block = label

    def const(self, value: float, dtype: Dtype) -> Vec:
        text = constant_text(value, dtype)
        return Vec(text if self.lanes == 1 else f"splat ({scalar_type(dtype)} {text})", dtype)

    def _suffix(self, dtype: Dtype) -> str:
        element = f"f{8 * dtype.itemsize}" if dtype.kind == "f" else f"i{8 * dtype.itemsize}"
        return element if self.lanes == 1 else f"v{self.lanes}{element}"

    def _intrinsic(self, name: str, *args: Vec, flags: tuple[str, ...] = ()) -> Vec:
        kind = self.type_of(args[0].dtype)
        full = f"@llvm.{name}.{self._suffix(args[0].dtype)}"
        types = [kind] * len(args) + [f.split()[0] for f in flags]
        self.module.declare(f"declare {kind} {full}({', '.join(types)})")
        operands = [f"{kind} {a.text}" for a in args] + list(flags)
        return self.emit(f"call {kind} {full}({', '.join(operands)})", args[0].dtype)

    def _binary(self, integer: str, floating: str, x: Vec, y: Vec) -> Vec:
        if x.dtype.kind != "f":
            return self.emit(f"{integer} {self.type_of(x.dtype)} {x.text}, {y.text}", x.dtype)
        return self.emit(f"{floating} {self.type_of(x.dtype)} {self.operand(x)}, {self.operand(y)}", x.dtype)

    def operand(self, x: Vec) -> str:
        """The text of a value, loaded where it is a constant of a module that loads them."""
        if not self.module.loads_constants or not x.text.startswith("splat"):
            return x.text
        kind = self.type_of(x.dtype)
        name = self.module.constant(kind, x.text)
        key = (self.block, name)
        if key not in self._loaded:
            self._loaded[key] = self.emit(f"load {kind}, ptr {name}, align 32", x.dtype).text
        return self._loaded[key]

    def add(self, x: Vec, y: Vec) -> Vec:
        return self._binary("add", "fadd", x, y)

    def sub(self, x: Vec, y: Vec) -> Vec:
        return self._binary("sub", "fsub", x, y)

    def mul(self, x: Vec, y: Vec) -> Vec:
        return self._binary("mul", "fmul", x, y)

    def div(self, x: Vec, y: Vec) -> Vec:
        if x.dtype.kind != "f":
            raise TypeError(f"div: dtype {x.dtype}; integers have no native division here")
        return self._binary("", "fdiv", x, y)

    def fma(self, x: Vec, y: Vec, z: Vec) -> Vec:
        if x.dtype == F16:
            raise TypeError("fma: dtype float16; widen it first")
        return self._intrinsic("fma", x, y, z)

    def neg(self, x: Vec) -> Vec:
        if x.dtype.kind == "f":
            return self.emit(f"fneg {self.type_of(x.dtype)} {x.text}", x.dtype)
        return self.sub(self.const(0, x.dtype), x)

    def abs(self, x: Vec) -> Vec:
        if x.dtype.kind == "f":
            return self._intrinsic("fabs", x)
        return x if x.dtype.kind == "u" else self._intrinsic("abs", x, flags=("i1 false",))

    def sqrt(self, x: Vec) -> Vec:
        return self._intrinsic("sqrt", x)

    def floor(self, x: Vec) -> Vec:
        return self._intrinsic("floor", x)

    def ceil(self, x: Vec) -> Vec:
        return self._intrinsic("ceil", x)

    def trunc(self, x: Vec) -> Vec:
        return self._intrinsic("trunc", x)

    def rint(self, x: Vec) -> Vec:
        return self._intrinsic("rint", x)

    def copysign(self, x: Vec, y: Vec) -> Vec:
        return self._intrinsic("copysign", x, y)

    def _compare(self, ordered: str, signed: str, unsigned: str, x: Vec, y: Vec) -> Vec:
        match x.dtype.kind:
            case "f":
                predicate = f"fcmp {ordered}"
            case "i":
                predicate = f"icmp {signed}"
            case _:
                predicate = f"icmp {unsigned}"
        return self.emit(f"{predicate} {self.type_of(x.dtype)} {x.text}, {y.text}", BOOL)

    def lt(self, x: Vec, y: Vec) -> Vec:
        return self._compare("olt", "slt", "ult", x, y)

    def le(self, x: Vec, y: Vec) -> Vec:
        return self._compare("ole", "sle", "ule", x, y)

    def eq(self, x: Vec, y: Vec) -> Vec:
        return self._compare("oeq", "eq", "eq", x, y)

    def ne(self, x: Vec, y: Vec) -> Vec:
        return self._compare("une", "ne", "ne", x, y)

    def select(self, condition: Vec, x: Vec, y: Vec) -> Vec:
        kind = self.type_of(x.dtype)
        text = f"select {self.type_of(BOOL)} {condition.text}, {kind} {x.text}, {kind} {y.text}"
        return self.emit(text, x.dtype)

    def and_(self, x: Vec, y: Vec) -> Vec:
        return self._binary("and", "", x, y)

    def or_(self, x: Vec, y: Vec) -> Vec:
        return self._binary("or", "", x, y)

    def xor(self, x: Vec, y: Vec) -> Vec:
        return self._binary("xor", "", x, y)

    def not_(self, x: Vec) -> Vec:
        return self.xor(x, self.const(True if x.dtype == BOOL else -1, x.dtype))

    def shl(self, x: Vec, n: Vec) -> Vec:
        return self._binary("shl", "", x, n)

    def shr(self, x: Vec, n: Vec) -> Vec:
        return self._binary("ashr" if x.dtype.kind == "i" else "lshr", "", x, n)

    def popcount(self, x: Vec) -> Vec:
        return self._intrinsic("ctpop", x)

    def clz(self, x: Vec) -> Vec:
        return self._intrinsic("ctlz", x, flags=("i1 false",))

    def convert(self, x: Vec, dtype: Dtype) -> Vec:
        if x.dtype == dtype:
            return x
        name = _conversion(x.dtype, dtype)
        source, target = self.type_of(x.dtype), self.type_of(dtype)
        return Vec(x.text, dtype) if not name else self.emit(f"{name} {source} {x.text} to {target}", dtype)

    def bitcast(self, x: Vec, dtype: Dtype) -> Vec:
        source, target = self.type_of(x.dtype), self.type_of(dtype)
        return Vec(x.text, dtype) if source == target else self.emit(f"bitcast {source} {x.text} to {target}", dtype)

    def lookup(self, table: tuple[float, ...], dtype: Dtype, index: Vec) -> Vec:
        if self.module.permutes != "none" and fits(table, dtype, index.dtype, self.lanes):
            return self.bitcast(Vec(permuted(self, self.module.permutes, table, dtype, index.text), I64), dtype)
        name, element, kind = self.module.table(table, dtype), scalar_type(dtype), self.type_of(dtype)
        place = self.emit(f"getelementptr {element}, ptr {name}, {self.type_of(index.dtype)} {index.text}", dtype)
        if self.lanes == 1:
            return self.emit(f"load {element}, ptr {place.text}", dtype)
        n, full = self.lanes, f"@llvm.masked.gather.{self._suffix(dtype)}.v{self.lanes}p0"
        self.module.declare(f"declare {kind} {full}(<{n} x ptr>, <{n} x i1>, {kind})")
        align = f"align {dtype.itemsize}"
        operands = f"<{n} x ptr> {align} {place.text}, <{n} x i1> splat (i1 true), {kind} zeroinitializer"
        return self.emit(f"call {kind} {full}({operands})", dtype)

    def _any(self, condition: Vec) -> str:
        if self.lanes == 1:
            return condition.text
        bits = self.emit(f"bitcast {self.type_of(BOOL)} {condition.text} to i{self.lanes}", BOOL)
        return self.emit(f"icmp ne i{self.lanes} {bits.text}, 0", BOOL).text

    def if_any(self, condition: Vec, slow: Callable[[], Values], fast: Callable[[], Values]) -> Values:
        rare, usual, done = self.new_label(), self.new_label(), self.new_label()
        self.lines.append(f"  br i1 {self._any(condition)}, label %{rare}, label %{usual}, {RARE}")
        ends: list[tuple[list[Vec], str]] = []
        for label, body in ((usual, fast), (rare, slow)):
            self.label(label)
            values = body()
            ends.append((_flatten(values), self.block))
            self.lines.append(f"  br label %{done}")
        self.label(done)
        merged = [self._phi(x, ends[0][1], y, ends[1][1]) for x, y in zip(ends[0][0], ends[1][0], strict=True)]
        return tuple(merged) if isinstance(values, tuple) else merged[0]

    def _phi(self, x: Vec, x_block: str, y: Vec, y_block: str) -> Vec:
        if x.dtype != y.dtype:
            raise TypeError(f"if_any: the paths give {x.dtype} and {y.dtype}; they must be equal")
        return self.emit(f"phi {self.type_of(x.dtype)} [ {x.text}, %{x_block} ], [ {y.text}, %{y_block} ]", x.dtype)

    def while_any(
        self, condition: Callable[..., Vec], body: Callable[..., Sequence[Vec]], *values: Vec
    ) -> tuple[Vec, ...]:
        before, head, inside, done = self.block, self.new_label(), self.new_label(), self.new_label()
        self.lines.append(f"  br label %{head}")
        self.label(head)
        names = [Vec(self.fresh(), v.dtype) for v in values]
        place = len(self.lines)  # the phis name the last block of the body, which is not known yet
        test = self._any(condition(*names))
        self.lines.append(f"  br i1 {test}, label %{inside}, label %{done}")
        self.label(inside)
        after = list(body(*names))
        self.lines[place:place] = [
            f"  {n.text} = phi {self.type_of(n.dtype)} [ {v.text}, %{before} ], [ {a.text}, %{self.block} ]"
            for n, v, a in zip(names, values, after, strict=True)
        ]
        self.lines.append(f"  br label %{head}")
        self.label(done)
        return tuple(names)

    def call(self, name: str, function: Callable[..., Values], *args: Vec, size: CallSize = "usual") -> Values:
        if not self.outline and size == "usual":
            return function(self, *args)
        key = (name, tuple(a.dtype.str for a in args), self.lanes)
        convention = "" if self.module.share is not None else "fastcc "
        if key not in self.module.outlined:
            make = self._outline if self.module.share is None else self._from_shared
            self.module.outlined[key] = make(name, function, args, size)
        symbol, result = self.module.outlined[key]
        operands = ", ".join(f"{self.type_of(a.dtype)} {a.text}" for a in args)
        if isinstance(result, Vec):
            return self.emit(f"call {convention}{self.type_of(result.dtype)} {symbol}({operands})", result.dtype)
        kind = self._struct(result)
        whole = self.emit(f"call {convention}{kind} {symbol}({operands})", BOOL)
        return tuple(self.emit(f"extractvalue {kind} {whole.text}, {i}", v.dtype) for i, v in enumerate(result))

    def _struct(self, values: Sequence[Vec]) -> str:
        return "{ " + ", ".join(self.type_of(v.dtype) for v in values) + " }"

    def _from_shared(
        self, name: str, function: Callable[..., Values], args: Sequence[Vec], size: CallSize
    ) -> tuple[str, Values]:
        """Declare an expansion that lives in a module of its own; the text is made once in the process."""
        key = (name, tuple(a.dtype.str for a in args), self.lanes, self.module.permutes)
        found = _SHARED.get(key)
        if found is None:
            own = ModuleText(permutes=self.module.permutes)
            symbol, result = VectorBuilder(own, self.lanes)._outline(name, function, args, size, linkage="")
            found = _SHARED[key] = Shared(symbol, result, own.text([]))
        # The name tells machines and versions apart: symbols are the process's, whoever compiled them.
        tag = hashlib.sha256(f"{self.module.share}\n{found.text}".encode()).hexdigest()[:16]
        symbol = f"{found.symbol}.{tag}"
        self.module.shared[symbol[1:]] = found.text.replace(f"{found.symbol}(", f"{symbol}(")
        values = _flatten(found.result)
        kind = self._struct(values) if isinstance(found.result, tuple) else self.type_of(values[0].dtype)
        self.module.declare(f"declare {kind} {symbol}({', '.join(self.type_of(a.dtype) for a in args)})")
        return symbol, found.result

    def _outline(
        self, name: str, function: Callable[..., Values], args: Sequence[Vec], size: CallSize,
        linkage: str = "internal fastcc ",
    ) -> tuple[str, Values]:  # fmt: skip
        inner = VectorBuilder(self.module, self.lanes, self.outline)
        symbol = f"@{name}.{'.'.join(a.dtype.name for a in args)}.x{self.lanes}"
        params = [Vec(f"%a{i}", a.dtype) for i, a in enumerate(args)]
        in_parts = size == "compact" and self.lanes > COMPACT_LANES
        result = inner._in_parts(function, params) if in_parts else function(inner, *params)
        kind, last = inner.type_of(_flatten(result)[0].dtype), _flatten(result)[0].text
        if isinstance(result, tuple):
            kind, last = inner._struct(result), "undef"
            for i, v in enumerate(result):
                last = inner.emit(f"insertvalue {kind} {last}, {inner.type_of(v.dtype)} {v.text}, {i}", BOOL).text
        head = ", ".join(f"{inner.type_of(p.dtype)} {p.text}" for p in params)
        body = "\n".join(inner.lines)
        opening = f"define {linkage}{kind} {symbol}({head}) noinline nounwind {{\nentry:"
        self.module.functions.append(f"{opening}\n{body}\n  ret {kind} {last}\n}}")
        return symbol, result

    def _in_parts(self, function: Callable[..., Values], args: Sequence[Vec]) -> Values:
        """``function`` in a loop over parts of the lanes, which pass through the stack: a quarter of the code."""
        part = VectorBuilder(self.module, COMPACT_LANES, self.outline)
        part._count = self._count = self._count + 1
        places = [self._on_stack(a.dtype) for a in args]
        for a, place in zip(args, places, strict=True):
            self.lines.append(f"  store {self.type_of(a.dtype)} {a.text}, ptr {place}")
        head, done = part.new_label(), part.new_label()
        index, after = part.fresh(), part.fresh()
        part.label(head)
        elements = [part._part_address(a.dtype, place, index) for a, place in zip(args, places, strict=True)]
        result = function(part, *(part._load(a.dtype, e) for a, e in zip(args, elements, strict=True)))
        values = _flatten(result)
        results = [self._on_stack(v.dtype) for v in values]
        for v, place in zip(values, results, strict=True):
            address = part._part_address(v.dtype, place, index)
            part.lines.append(f"  store {part.type_of(v.dtype)} {v.text}, ptr {address}")
        phi = f"  {index} = phi i64 [ 0, %{self.block} ], [ {after}, %{part.block} ]"
        more = part.fresh()
        self.lines += [
            f"  br label %{head}", part.lines[0], phi, *part.lines[1:], f"  {after} = add i64 {index}, {COMPACT_LANES}",
            f"  {more} = icmp ult i64 {after}, {self.lanes}", f"  br i1 {more}, label %{head}, label %{done}",
        ]  # fmt: skip
        self._count = part._count
        self.label(done)
        whole = [self._load(v.dtype, place) for v, place in zip(values, results, strict=True)]
        return tuple(whole) if isinstance(result, tuple) else whole[0]

    def _on_stack(self, dtype: Dtype) -> str:
        self._allocations += 1
        name = f"%stack{self._allocations}"
        self.lines.insert(0, f"  {name} = alloca {self.type_of(dtype)}, align 64")
        return name

    def _part_address(self, dtype: Dtype, place: str, index: str) -> str:
        return self.emit(f"getelementptr {scalar_type(dtype)}, ptr {place}, i64 {index}", dtype).text

    def _load(self, dtype: Dtype, place: str) -> Vec:
        return self.emit(f"load {self.type_of(dtype)}, ptr {place}", dtype)


def _flatten(values: Values) -> list[Vec]:
    return list(values) if isinstance(values, tuple) else [values]


def _conversion(source: Dtype, target: Dtype) -> str:
    """The LLVM instruction, or nothing where both are one LLVM type."""
    from_float, to_float = source.kind == "f", target.kind == "f"
    wider = target.itemsize > source.itemsize or source == BOOL
    match (from_float, to_float):
        case (True, True):
            if F16 in (source, target) and F64 in (source, target):
                raise TypeError(f"convert: {source} to {target}; float16 goes by way of float32")
            return "fpext" if wider else "fptrunc"
        case (True, False):
            if source == F16 or target == BOOL:
                raise TypeError(f"convert: {source} to {target} is not native")
            return "fptosi" if target.kind == "i" else "fptoui"
        case (False, True):
            if target == F16 and source != BOOL:
                raise TypeError(f"convert: {source} to {target}; float16 goes by way of float32")
            return "sitofp" if source.kind == "i" else "uitofp"
        case _:
            if target == BOOL:
                raise TypeError(f"convert: {source} to {target} is not native")
            if source != BOOL and source.itemsize == target.itemsize:
                return ""
            return ("sext" if source.kind == "i" else "zext") if wider else "trunc"


def apply(b: VectorBuilder, op: Op, params: Any, args: Sequence[Vec | Complex]) -> Vec | Complex:
    """The value of a pointwise op on values that the loop has loaded."""
    if not isinstance(op.form, Pointwise):
        raise TypeError(f"{op.name}: form {type(op.form).__name__}; only pointwise ops are applied to scalars")
    result: Vec | Complex = op.form.scalar(b, *args, **params)
    return result
