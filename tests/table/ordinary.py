"""Calls of rows at ordinary points, where every derivative exists and a step leads over no kink: a row's name in, a
function of arrays with arguments out, for each choice of dtypes and of parameters that its samples have."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenferro.tracer.api.deliver import new_array
from tenferro.tracer.op import Pointwise
from tenferro.tracer.ops import OPS, layout
from tenferro.tracer.program import Operand
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import operand
from tests.samples import SAMPLES, Sample
from tests.table.test_infer import reference

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Call:
    """A function of arrays that vary, and the arrays. ``precision``: the narrowest real dtype on the way."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Array, ...]
    precision: str

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{x.dtype}{x.shape}' for x in self.arguments)})"


def varies(x: Array) -> bool:
    return x.dtype.kind in "fc"


def precision_of(arrays: Iterable[Array]) -> str:
    """The narrowest real dtype of those that vary."""
    return min((x.real.dtype for x in arrays if varies(x)), key=lambda d: d.itemsize).name


def spaced(shape: tuple[int, ...], dtype: np.dtype[Any], turn: int = 0) -> Array:
    """Distinct values of moderate size, apart from one another, from those of other turns and from 0, in an order that
    depends on ``turn``."""
    count = max(int(np.prod(shape)), 1)

    def part(seed: int) -> Array:
        numbers = np.random.default_rng(seed).permutation(count) - count // 2
        return np.asarray((0.5 + numbers + 0.27 * (seed % 3 - 1)) * min(0.9, 6 / count))

    values = part(turn) + 1j * part(turn + 10) if dtype.kind == "c" else part(turn)
    return np.asarray(values).reshape(shape).astype(dtype)


def _sizes(x: Array) -> Array:
    return np.asarray(np.abs(x) + x.dtype.type(0.6), x.dtype)


_DOMAINS: dict[str, Callable[[Array], Array]] = {
    **dict.fromkeys(("log", "log2", "log10", "sqrt", "rsqrt", "cbrt", "power", "hypot"), _sizes),
    **dict.fromkeys(("prod", "products_before"), lambda x: x / (2 + 2 * np.abs(x)) + x / np.abs(x)),
    "log1p": lambda x: _sizes(x) - x.dtype.type(0.8),
    "arccosh": lambda x: _sizes(x) + x.dtype.type(1),
    **dict.fromkeys(
        ("arcsin", "arccos", "arctanh", "erfinv", "tan"), lambda x: np.asarray(np.tanh(x) * x.dtype.type(0.6))
    ),
    **dict.fromkeys(
        ("divide", "reciprocal", "tangent_quotient", "absolute", "sign", "arctan2"), lambda x: x + np.sign(x.real)
    ),
}
"""Where functions are defined and have slopes of moderate size."""


def _operands(name: str, sample: Sample) -> tuple[Array, ...]:
    keep = _DOMAINS.get(name, lambda x: x)
    here = (3,) if isinstance(OPS[name].form, Pointwise) else None
    found = tuple(
        np.asarray(keep(spaced(x.shape if here is None else here, x.dtype, k)), x.dtype)
        if varies(x)
        else x
        if here is None
        else np.resize(x, here)
        for k, x in enumerate(sample.operands)
    )
    if name in ("remainder", "fmod"):  # between two steps
        below = found[1] + np.sign(found[1])
        return np.asarray(below * below.dtype.type(2.5)), below
    return found


def _kind(name: str, sample: Sample) -> Hashable:
    """What calls for a function of its own: dtypes, and in double precision parameters too, but for sizes and axes."""
    dtypes = tuple(x.dtype.name for x in sample.operands if varies(x))
    results = tuple(x.dtype.name for x in reference(name, sample))
    named: tuple[str, ...] = ("function",)
    if {*dtypes} <= {"float64", "complex128"}:
        named = ("function", "mode", "reduction", "reverse", "tiled", "static")
    return dtypes, results, *(str(sample.params.get(k)) for k in named)


def _is_ordinary(name: str, sample: Sample) -> bool:
    """Whether it has a few elements, and a result that varies with them."""
    found = [x.size for x in sample.operands if varies(x)]
    results = [x for x in reference(name, sample) if varies(x)]
    return bool(found and results) and 2 <= max(found) <= 40 and all(found) and all(x.size for x in results)


def row_calls(name: str) -> Iterator[Call]:
    """One for each kind of sample, the one with the fewest elements."""
    chosen: dict[Hashable, Sample] = {}
    for sample in sorted(SAMPLES[name].samples, key=lambda s: sum(x.size for x in s.operands)):
        if _is_ordinary(name, sample):
            chosen.setdefault(_kind(name, sample), sample)
    for sample in chosen.values():
        yield _call(name, sample)


def _call(name: str, sample: Sample) -> Call:
    operands, params = _operands(name, sample), dict(sample.params)
    arguments = tuple(x for x in operands if varies(x))
    shapes = tuple(x.shape for x in operands)
    held = {k: x for k, x in enumerate(operands) if not varies(x)}

    def function(*arrays: Any) -> Any:
        given = iter(arrays)
        trace = running_trace(name)
        inputs = [_pinned(trace, name, held[k] if k in held else next(given), shape) for k, shape in enumerate(shapes)]
        return [new_array(trace, y) for y in trace.emit(OPS[name], inputs, **params) if y.type.dtype.kind in "fc"]

    precision = precision_of((*arguments, *reference(name, Sample(operands, params))))
    return Call(str(sample.params.get("function", name)), function, arguments, precision)


def _pinned(trace: Trace, name: str, x: Any, shape: tuple[int, ...]) -> Operand:
    """The operand with numbers as sizes, as the parameters have them."""
    found: Operand = operand(trace, x, name)[0]
    return found if isinstance(OPS[name].form, Pointwise) else trace.emit1(layout.reshape, found, shape=shape)
