"""A region in, its text with every function written out in native scalar operations out.

These are the operations that each engine emits, in the order in which the expansions of ``tenferro.tracer.scalar``
write them; vectors, loops and loads are the engine's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from tenferro.lowering.region import Apply, Region
from tenferro.tracer.op import Pointwise
from tenferro.tracer.records import dataclass
from tenferro.tracer.scalar.builder import CallSize, Complex, Dtype, Value, Values

BOOL = np.dtype(np.bool_)
_COMPARISONS = ("lt", "le", "eq", "ne")


@dataclass(frozen=True, slots=True)
class Name:
    """A value by its name in the text."""

    text: str
    dtype: Dtype

    def __str__(self) -> str:
        return self.text


@dataclass
class TextBuilder:
    """A ``Builder`` that writes one line per native operation; ``functions`` collects the texts of shared functions."""

    functions: dict[str, list[str]] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    indent: int = 1
    count: int = 0

    def _name(self, dtype: Dtype) -> Name:
        self.count += 1
        return Name(f"t{self.count}", dtype)

    def write(self, text: str) -> None:
        """One line at the present depth."""
        self.lines.append("  " * self.indent + text)

    def _operation(self, name: str, dtype: Dtype, *operands: object) -> Name:
        result = self._name(dtype)
        self.write(f"{result}: {dtype.name} = {name} {', '.join(map(str, operands))}")
        return result

    def __getattr__(self, name: str) -> Callable[..., Name]:
        # Every operation that is not written below gives its first operand's dtype, comparisons give bool.
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *xs: self._operation(name.rstrip("_"), BOOL if name in _COMPARISONS else xs[0].dtype, *xs)

    def const(self, value: complex, dtype: Dtype) -> Name:
        return Name(f"{value!r}:{dtype.name}", dtype)

    def select(self, condition: Value, x: Value, y: Value) -> Name:
        return self._operation("select", x.dtype, condition, x, y)

    def convert(self, x: Value, dtype: Dtype) -> Name:
        return self._operation("convert", dtype, x)

    def bitcast(self, x: Value, dtype: Dtype) -> Name:
        return self._operation("bitcast", dtype, x)

    def lookup(self, table: tuple[complex, ...], dtype: Dtype, index: Value) -> Name:
        return self._operation("lookup", dtype, f"table of {len(table)}", index)

    def _block(self, head: str, body: Callable[[], Values]) -> Values:
        self.write(head)
        self.indent += 1
        found = body()
        self.write(f"yield {_text(found)}")
        self.indent -= 1
        return found

    def if_any(self, condition: Value, slow: Callable[[], Values], fast: Callable[[], Values]) -> Values:
        found = self._block(f"if any {condition}:", slow)
        self._block("else:", fast)
        return self._renamed("from the branch taken", found)

    def while_any(
        self, condition: Callable[..., Value], body: Callable[..., Sequence[Value]], *values: Value
    ) -> tuple[Value, ...]:
        state = tuple(self._name(v.dtype) for v in values)
        self.write(f"{_text(state)} = loop from {_text(values)}")
        self._block("while any:", lambda: condition(*state))
        self._block("do:", lambda: tuple(body(*state)))
        return state

    def call(self, name: str, function: Callable[..., Values], *args: Value, size: CallSize = "usual") -> Values:
        key = f"{name}.{'.'.join(a.dtype.name for a in args)}"
        inner = TextBuilder(self.functions, indent=1)
        parameters = tuple(Name(f"x{k}", a.dtype) for k, a in enumerate(args))
        found = function(inner, *parameters)
        if key not in self.functions:
            heads = ", ".join(f"{p}: {p.dtype.name}" for p in parameters)
            self.functions[key] = [f"function {key}({heads})", *inner.lines, f"  return {_text(found)}"]
        return self._renamed(f"{key}({_text(args)})", found)

    def _renamed(self, text: str, found: Values) -> Values:
        values = found if isinstance(found, tuple) else (found,)
        names = tuple(_like(v, self._name) for v in values)
        self.write(f"{_text(names)} = {text}")
        return names if isinstance(found, tuple) else names[0]


def _like(value: Value, name: Callable[[Dtype], Name]) -> Value:
    return Complex(name(value.re.dtype), name(value.im.dtype)) if isinstance(value, Complex) else name(value.dtype)


def _text(values: Any) -> str:
    if isinstance(values, tuple):
        return ", ".join(_text(v) for v in values)
    return f"({values.re}, {values.im})" if isinstance(values, Complex) else str(values)


def _named(k: int, dtype: Dtype) -> Value:
    if dtype.kind != "c":
        return Name(f"v{k}", dtype)
    part = np.dtype(f"f{dtype.itemsize // 2}")
    return Complex(Name(f"v{k}.re", part), Name(f"v{k}.im", part))


def kernel_text(region: Region) -> str:
    """The region's loads, functions and stores, each pointwise node followed by its expansion."""
    builder = TextBuilder()
    builder.write(f"kernel {region.name}")
    for k, node in enumerate(region.nodes):
        builder.indent = 1
        builder.write(f"v{k}: {node.dtype.name} = {node}")
        if isinstance(node, Apply) and isinstance(node.op.form, Pointwise):
            builder.indent = 2
            args = [_named(a, region.nodes[a].dtype) for a in node.args]
            found = node.op.form.scalar(builder, *args, **dict(node.params))
            builder.write(f"yield {_text(found)}")
    builder.indent = 1
    for store in region.stores:
        builder.write(str(store))
    texts = ["\n".join(builder.lines)[2:], *("\n".join(f) for f in builder.functions.values())]
    return "\n".join(texts)
