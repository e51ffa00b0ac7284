"""Convolutions and reductions over windows: what slides along an array, as slices of it.

A convolution gathers, for each place of its result, the elements under the kernel (slices of the padded operand beside
one another) and is one matrix product with the kernel. So its derivatives are those of slices and of a product. Sizes
of kernels and windows are numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np

from tenferro.tracer.api.lax_common import function
from tenferro.tracer.api.record import API, TracedFunction
from tenferro.tracer.errors import DtypeError, ShapeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.records import dataclass
from tenferro.tracer.trace import running_trace
from tenferro.tracer.traced import TracedArray, as_traced

Pairs = Sequence[tuple[Any, Any]]


@dataclass(frozen=True)
class ConvDimensionNumbers:
    """Where batch, features and the spatial axes are: of the operand, of the kernel (out, in, spatial), of the
    result."""

    lhs_spec: tuple[int, ...]
    rhs_spec: tuple[int, ...]
    out_spec: tuple[int, ...]


def conv_dimension_numbers(lhs_shape: Sequence[Any], rhs_shape: Sequence[Any], numbers: Any) -> ConvDimensionNumbers:
    """From letters such as ``("NHWC", "HWIO", "NHWC")``; None for ``("NCHW", "OIHW", "NCHW")`` of any rank."""
    rank = len(lhs_shape)
    if isinstance(numbers, ConvDimensionNumbers):
        return numbers
    if numbers is None:
        whole = tuple(range(rank))
        return ConvDimensionNumbers(whole, whole, whole)
    lhs, rhs, out = numbers
    letters = [c for c in rhs if c not in "OI"]
    if any(len(set(x)) != rank or len(x) != rank for x in (lhs, rhs, out)):
        raise ShapeError(
            f"conv_dimension_numbers: {numbers} for rank {rank}; three words of {rank} different letters are "
            f"needed{at(user_line())}"
        )
    try:
        return ConvDimensionNumbers(
            tuple(lhs.index(c) for c in ("N", "C", *letters)), tuple(rhs.index(c) for c in ("O", "I", *letters)),
            tuple(out.index(c) for c in ("N", "C", *letters)),
        )  # fmt: skip
    except ValueError:
        raise ShapeError(
            f"conv_dimension_numbers: {numbers}; N and C in the first and third word, O and I in the second, and the "
            f"same other letters in all are needed{at(user_line())}"
        ) from None


def _per_axis(x: Any, count: int, name: str, what: str) -> tuple[int, ...]:
    if x is None:
        return (1,) * count
    found = (x,) * count if isinstance(x, int) else tuple(int(n) for n in x)
    if len(found) != count or any(n < 1 for n in found):
        raise ShapeError(
            f"{name}: {what} {x!r} for {count} spatial axes; a positive int for each is needed{at(user_line())}"
        )
    return found


def _pads(padding: Any, sizes: Sequence[Any], windows: Sequence[int], strides: Sequence[int], name: str) -> Pairs:
    """Elements to add before and after each axis."""
    if isinstance(padding, int):
        return [(padding, padding)] * len(windows)
    if not isinstance(padding, str):
        found = [(p, p) if isinstance(p, int) else tuple(p) for p in padding]
        if len(found) != len(windows) or any(len(p) != 2 for p in found):
            raise ShapeError(
                f"{name}: padding {padding!r}; a pair for each of {len(windows)} axes is needed{at(user_line())}"
            )
        return found
    match padding.upper():
        case "VALID":
            return [(0, 0)] * len(windows)
        case "SAME" | "SAME_LOWER":
            pairs = []
            for n, window, stride in zip(sizes, windows, strides, strict=True):
                total = (-(-n // stride) - 1) * stride + window - n
                total = max(total, 0) if isinstance(total, int) else _at_least_0(total)
                low = -(-total // 2) if padding.upper() == "SAME_LOWER" else total // 2
                pairs.append((low, total - low))
            return pairs
        case _:
            raise ShapeError(f"{name}: padding {padding!r}; 'SAME', 'VALID' or pairs are needed{at(user_line())}")


def _at_least_0(n: Any) -> Any:
    return n if n > 0 else 0


def _padded(x: Any, pads: Pairs, inner: Sequence[int], first: int, fill: Any) -> Any:
    """Along the axes from ``first`` on; ``inner``: spacing between elements."""
    config = [(0, 0, 0)] * first + [(lo, hi, d - 1) for (lo, hi), d in zip(pads, inner, strict=True)]
    config += [(0, 0, 0)] * (x.ndim - len(config))
    if all(c == (0, 0, 0) for c in config):
        return x
    from tenferro.tracer.api.lax_registry import LAX

    plain = type(fill) is not TracedArray
    return LAX["pad"].function(x, np.asarray(fill, x.dtype)[()] if plain else fill.astype(x.dtype), config)


def _slices(
    x: Any, windows: Sequence[int], strides: Sequence[int], dilation: Sequence[int], first: int, name: str
) -> list[Any]:
    """For each place in a window the elements there, of all windows."""
    counts = []
    for k, (window, stride, d) in enumerate(zip(windows, strides, dilation, strict=True)):
        n = x.shape[first + k]
        reach = (window - 1) * d + 1
        if n < reach:
            raise ShapeError(
                f"{name}: axis of size {n} under a window that reaches over {reach}; padding is needed{at(user_line())}"
            )
        counts.append((n - reach) // stride + 1)
    found = []
    for place in product(*(range(n) for n in windows)):
        key: list[Any] = [slice(None)] * first
        for k, (p, count, stride, d) in enumerate(zip(place, counts, strides, dilation, strict=True)):
            start = p * d
            del k
            key.append(slice(start, start + (count - 1) * stride + 1, stride))
        found.append(x[tuple(key)])
    return found


def conv_general_dilated(
    lhs: Any, rhs: Any, window_strides: Any, padding: Any, lhs_dilation: Any = None, rhs_dilation: Any = None,
    dimension_numbers: Any = None, feature_group_count: int = 1, batch_group_count: int = 1, precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:  # fmt: skip
    """The convolution of networks (a correlation: the kernel is not turned round).

    lhs: (batch, features, spatial …), rhs: (out, in, spatial …), unless ``dimension_numbers`` say otherwise. padding:
    'SAME', 'VALID', or pairs. lhs_dilation: spacing of the operand's elements (a transposed convolution),
    rhs_dilation: of the kernel's. feature_group_count: groups of features with kernels of their own. precision and
    preferred_element_type change nothing: products are in the operands' dtype.

    ShapeError, DtypeError for operands that do not fit."""
    name = "conv_general_dilated"
    trace = running_trace(name)
    x, w = as_traced(trace, lhs, name), as_traced(trace, rhs, name)
    if x.ndim != w.ndim or x.ndim < 3:
        raise ShapeError(
            f"{name}: operands of rank {x.ndim} and {w.ndim}; one rank of at least 3 is needed{at(user_line())}"
        )
    if x.dtype != w.dtype:
        raise DtypeError(f"{name}: dtypes {x.dtype.name} and {w.dtype.name}; one is needed{at(user_line())}")
    if batch_group_count != 1:
        raise ShapeError(f"{name}: batch_group_count is {batch_group_count}; 1 is needed{at(user_line())}")
    spatial = x.ndim - 2
    numbers = conv_dimension_numbers(x.shape, w.shape, dimension_numbers)
    batch, feature, *places = numbers.lhs_spec
    x = x.transpose((batch, *places, feature))
    out, inner, *places = numbers.rhs_spec
    w = w.transpose((*places, inner, out))
    windows = [int(n) for n in w.shape[:spatial]]
    strides = _per_axis(window_strides, spatial, name, "window_strides")
    spaced, dilation = (
        _per_axis(d, spatial, name, what)
        for d, what in ((lhs_dilation, "lhs_dilation"), (rhs_dilation, "rhs_dilation"))
    )
    reaches = [(n - 1) * d + 1 for n, d in zip(windows, dilation, strict=True)]
    sizes = [(n - 1) * d + 1 for n, d in zip(x.shape[1:-1], spaced, strict=True)]
    x = _padded(x, _pads(padding, sizes, reaches, strides, name), spaced, 1, 0)
    result = _convolved(x, w, windows, strides, dilation, int(feature_group_count), name)
    order = [numbers.out_spec.index(a) for a in range(x.ndim)]
    # The result has batch, spatial axes, features; ``order`` counts batch, features, spatial axes.
    last = x.ndim - 1
    return result.transpose([0 if k == 0 else last if k == 1 else k - 1 for k in order])


def _convolved(
    x: Any, w: Any, windows: Sequence[int], strides: Sequence[int], dilation: Sequence[int], groups: int, name: str
) -> Any:
    """x: (batch, spatial …, features); w: (spatial …, in, out)."""
    features, (inner, out) = x.shape[-1], w.shape[-2:]
    if features != inner * groups or out % groups:
        raise ShapeError(
            f"{name}: x has {features} features, the kernel takes {inner * groups} ({inner} in each of {groups} "
            f"groups) and gives {out}; as many as it takes are needed, equal parts out for each group{at(user_line())}"
        )
    parts = _slices(x, windows, strides, dilation, 1, name)
    count = len(parts)
    shape = parts[0].shape[:-1]
    if groups == 1:
        patches = np.concatenate(parts, axis=-1) if count > 1 else parts[0]
        flat = patches.reshape((-1, count * features))
        return (flat @ w.reshape((count * inner, out))).reshape((*shape, out))
    stacked = np.stack([p.reshape((*shape, groups, inner)) for p in parts], axis=-2)
    flat = stacked.reshape((-1, groups, count * inner))
    kernels = w.reshape((count * inner, groups, out // groups))
    found = np.matmul(flat.transpose((1, 0, 2)), kernels.transpose((1, 0, 2)))
    return found.transpose((1, 0, 2)).reshape((*shape, out))


def conv(lhs: Any, rhs: Any, window_strides: Any, padding: Any, precision: Any = None) -> Any:
    """``conv_general_dilated`` of (batch, features, spatial …) with (out, in, spatial …)."""
    return conv_general_dilated(lhs, rhs, window_strides, padding)


def conv_with_general_padding(
    lhs: Any, rhs: Any, window_strides: Any, padding: Any, lhs_dilation: Any, rhs_dilation: Any
) -> Any:
    """The same with dilations."""
    return conv_general_dilated(lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation)


def conv_transpose(
    lhs: Any, rhs: Any, strides: Any, padding: Any, rhs_dilation: Any = None, dimension_numbers: Any = None,
    transpose_kernel: bool = False, precision: Any = None, preferred_element_type: Any = None,
) -> Any:  # fmt: skip
    """The convolution of networks with ``strides`` between the operand's elements: 'SAME' padding gives so many times
    its sizes. Features are last, and the kernel is (spatial …, in, out), unless ``dimension_numbers`` say otherwise.
    transpose_kernel: turn the kernel round and exchange in and out, as for the transpose of a convolution."""
    name = "conv_transpose"
    trace = running_trace(name)
    x, w = as_traced(trace, lhs, name), as_traced(trace, rhs, name)
    spatial = x.ndim - 2
    if dimension_numbers is None and spatial in (1, 2, 3):
        letters = "HWD"[:spatial]
        dimension_numbers = f"N{letters}C", f"{letters}IO", f"N{letters}C"
    numbers = conv_dimension_numbers(x.shape, w.shape, dimension_numbers)
    out, inner, *places = numbers.rhs_spec
    steps = _per_axis(strides, spatial, name, "strides")
    dilation = _per_axis(rhs_dilation, spatial, name, "rhs_dilation")
    pads = padding
    if isinstance(padding, str):
        reaches = [(int(w.shape[k]) - 1) * d + 1 for k, d in zip(places, dilation, strict=True)]
        pads = [_transposed_pads(n, s, padding) for n, s in zip(reaches, steps, strict=True)]
    if transpose_kernel:
        w = np.swapaxes(np.flip(w, tuple(places)), out, inner)
    return conv_general_dilated(x, w, (1,) * spatial, pads, steps, dilation, dimension_numbers)


def _transposed_pads(reach: int, stride: int, padding: str) -> tuple[int, int]:
    match padding.upper():
        case "SAME":
            total = reach + stride - 2
            low = reach - 1 if stride > reach - 1 else -(-total // 2)
        case "VALID":
            total, low = reach + stride - 2 + max(reach - stride, 0), reach - 1
        case _:
            raise ShapeError(
                f"conv_transpose: padding {padding!r}; 'SAME', 'VALID' or pairs are needed{at(user_line())}"
            )
    return low, total - low


_FOLDS: dict[str, str] = {"max": "maximum", "min": "minimum", "add": "add", "multiply": "multiply"}


def _windowed(
    name: str, operand: Any, how: str, fill: Any, window_dimensions: Any, window_strides: Any, padding: Any,
    base_dilation: Any = None, window_dilation: Any = None,
) -> Any:  # fmt: skip
    """Folded over the places in a window, each a slice of the whole."""
    x = as_traced(running_trace(name), operand, name)
    windows = _per_axis(window_dimensions, x.ndim, name, "window_dimensions")
    strides = _per_axis(window_strides, x.ndim, name, "window_strides")
    spaced = _per_axis(base_dilation, x.ndim, name, "base_dilation")
    dilation = _per_axis(window_dilation, x.ndim, name, "window_dilation")
    reaches = [(n - 1) * d + 1 for n, d in zip(windows, dilation, strict=True)]
    sizes = [(n - 1) * d + 1 for n, d in zip(x.shape, spaced, strict=True)]
    x = _padded(x, _pads(padding, sizes, reaches, strides, name), spaced, 0, fill)
    first, *others = _slices(x, windows, strides, dilation, 0, name)
    combine: Callable[..., Any] = API[_FOLDS[how]].function
    result = first + 0 if how == "add" and not others else first
    for part in others:
        result = combine(result, part)
    return API["copy"].function(result) if not others else result


def _least(x: Any) -> Any:
    dtype = as_traced(running_trace("reduce_window_max"), x, "reduce_window_max").dtype
    return -np.inf if dtype.kind == "f" else False if dtype.kind == "b" else np.iinfo(dtype).min


def _most(x: Any) -> Any:
    dtype = as_traced(running_trace("reduce_window_min"), x, "reduce_window_min").dtype
    return np.inf if dtype.kind == "f" else True if dtype.kind == "b" else np.iinfo(dtype).max


def reduce_window_max(operand: Any, window_dimensions: Any, window_strides: Any = None, padding: Any = "VALID") -> Any:
    """The largest element under each window; a window for every axis."""
    return _windowed("reduce_window_max", operand, "max", _least(operand), window_dimensions, window_strides, padding)


def reduce_window_min(operand: Any, window_dimensions: Any, window_strides: Any = None, padding: Any = "VALID") -> Any:
    """The smallest element under each window."""
    return _windowed("reduce_window_min", operand, "min", _most(operand), window_dimensions, window_strides, padding)


def reduce_window_sum(operand: Any, window_dimensions: Any, window_strides: Any = None, padding: Any = "VALID") -> Any:
    """The sum under each window."""
    return _windowed("reduce_window_sum", operand, "add", 0, window_dimensions, window_strides, padding)


_KNOWN_NAMES = {"max": "max", "min": "min", "add": "add", "mul": "multiply"}  # of tn.lax
_KNOWN = {np.maximum: "max", np.minimum: "min", np.add: "add", np.multiply: "multiply"}


def reduce_window(
    operand: Any, init_value: Any, computation: Any, window_dimensions: Any, window_strides: Any, padding: Any,
    base_dilation: Any = None, window_dilation: Any = None,
) -> Any:  # fmt: skip
    """Elements under each window folded by ``tn.lax.max``, ``min``, ``add`` or ``mul`` (or NumPy's), from
    ``init_value``, which also fills the padding."""
    names = {
        "max": "max",
        "min": "min",
        "add": "add",
        "mul": "multiply",
        "maximum": "max",
        "minimum": "min",
        "multiply": "multiply",
    }
    how = _KNOWN.get(computation) or names.get(getattr(computation, "__name__", ""))
    if how is None:
        raise ShapeError(
            f"reduce_window: computation {computation!r}; tn.lax.max, min, add or mul is needed{at(user_line())}"
        )
    found = _windowed(
        "reduce_window",
        operand,
        how,
        init_value,
        window_dimensions,
        window_strides,
        padding,
        base_dilation,
        window_dilation,
    )
    return API[_FOLDS[how]].function(found, init_value)


def top_k(operand: Any, k: int) -> tuple[Any, Any]:
    """The k largest elements along the last axis in descending order, and their places; equal ones in order."""
    x = as_traced(running_trace("top_k"), operand, "top_k")
    if x.ndim == 0 or not 0 <= k <= x.shape[-1]:
        raise ShapeError(
            f"top_k: k is {k} for shape {x.shape}; at most the last axis's size is needed{at(user_line())}"
        )
    turned = x[..., ::-1]
    order = np.argsort(turned, axis=-1, kind="stable")[..., ::-1][..., :k]
    places = x.shape[-1] - 1 - order
    return np.take_along_axis(x, places, -1), places


FUNCTIONS: tuple[TracedFunction, ...] = (
    function("conv_general_dilated", conv_general_dilated, "lhs", "rhs"),
    function("conv", conv, "lhs", "rhs"),
    function("conv_with_general_padding", conv_with_general_padding, "lhs", "rhs"),
    function("conv_transpose", conv_transpose, "lhs", "rhs"),
    function("reduce_window", reduce_window, "operand", "init_value"),
    function("reduce_window_max", reduce_window_max, "operand"),
    function("reduce_window_min", reduce_window_min, "operand"),
    function("reduce_window_sum", reduce_window_sum, "operand"),
    function("top_k", top_k, "operand"),
)
