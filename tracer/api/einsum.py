"""``numpy.einsum``: subscripts and arrays in; diagonals, transposes, fused sums of products and matrix products out.

Arrays meet two at a time. Where a path is not asked for, the first one meets the next one that shares a subscript with
it, and so on: the order depends on the subscripts alone, so that one program serves every size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api import linalg
from tenferro.tracer.api.contraction import F16, F32, contracted, summed
from tenferro.tracer.api.deliver import check_cast, deliver
from tenferro.tracer.api.layout import permuted
from tenferro.tracer.api.promotion import broadcast_shapes, converted, result_type, sizes_text
from tenferro.tracer.api.record import ApiFunction
from tenferro.tracer.api.reductions import of_bools
from tenferro.tracer.dim import integer
from tenferro.tracer.dims import Extent
from tenferro.tracer.errors import ShapeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import reductions
from tenferro.tracer.program import Operand
from tenferro.tracer.records import dataclass
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import TracedArray, as_traced

Label: TypeAlias = str | int
"""A subscript: a letter, or a number of the form with lists; negative ones stand for the axes of an ellipsis."""
Labels = tuple[Label, ...]
ELLIPSIS = "..."


@dataclass(frozen=True, slots=True)
class Term:
    """An operand and its axes' subscripts, each of them once."""

    value: Operand
    labels: Labels

    def axes(self, labels: Sequence[Label]) -> tuple[int, ...]:
        """Where these subscripts stand."""
        return tuple(self.labels.index(x) for x in labels)


def einsum(
    *operands: Any, out: Any = None, optimize: Any = False, dtype: Any = None, order: Any = "K", casting: Any = "safe"
) -> Any:
    """Sums of products by subscripts, ``einsum("ij,jk->ik", a, b)`` or ``einsum(a, [0, 1], b, [1, 2], [0, 2])``.

    ``optimize``: False meets arrays in the order of their subscripts; a path as ``numpy.einsum_path`` gives it is
    followed; True, "greedy" or "optimal" ask NumPy for one, which pins the sizes. The result is C-ordered whatever
    ``order`` is; of one array whose axes are only exchanged it is a view."""
    trace = running_trace("einsum")
    arrays, inputs, output = _read(trace, operands)
    labels, wanted = _expanded(arrays, inputs, output)
    if order not in ("C", "F", "A", "K", "c", "f", "a", "k"):
        raise ShapeError(f"einsum: order {order!r}; one of C, F, A and K is needed{at(user_line())}")
    found = result_type([x.dtype for x in arrays]) if dtype is None else np.dtype(dtype)
    for array in arrays:
        check_cast("einsum", array.dtype, found, casting)
    if len(arrays) == 1 and out is None and arrays[0].dtype == found and set(labels[0]) == set(wanted):
        array, own = _diagonals(trace, arrays[0], labels[0])
        return permuted(array, [own.index(x) for x in wanted])
    terms = _terms(trace, arrays, labels, found)
    path = _path(trace, terms, wanted, optimize)
    is_one_step = len(terms) == 2 and all(set(t.labels) <= {*wanted, *u.labels} for t, u in (terms, terms[::-1]))
    if found == F16 and not is_one_step:  # rounded once, at the end
        terms = [Term(build.convert(trace, t.value, F32), t.labels) for t in terms]
    value = build.convert(trace, _product(trace, terms, wanted, path), found)
    return deliver(trace, "einsum", value, out, casting=casting)


# Subscripts.


def _read(trace: Trace, operands: tuple[Any, ...]) -> tuple[list[Any], list[list[Label]], list[Label] | None]:
    """The arrays, the subscripts of each, and those of the result, None where they are not told."""
    if not operands:
        raise ShapeError(f"einsum: no arguments; subscripts and arrays are needed{at(user_line())}")
    if isinstance(operands[0], str):
        before, arrow, after = operands[0].partition("->")
        inputs = [_letters(text) for text in before.split(",")]
        output = _letters(after) if arrow else None
        given = list(operands[1:])
    else:
        given, inputs = list(operands[: len(operands) // 2 * 2 : 2]), [_numbers(x) for x in operands[1::2]]
        output = _numbers(operands[-1]) if len(operands) % 2 else None
    if len(given) != len(inputs):
        raise ShapeError(
            f"einsum: {len(given)} arrays for {len(inputs)} lists of subscripts; equal numbers are "
            f"needed{at(user_line())}"
        )
    return [as_traced(trace, x, "einsum") for x in given], inputs, output


def _letters(text: str) -> list[Label]:
    found: list[Label] = []
    rest = text.replace(" ", "")
    while rest:
        step = ELLIPSIS if rest.startswith(ELLIPSIS) else rest[0]
        if step != ELLIPSIS and not (step.isascii() and step.isalpha()):
            raise ShapeError(
                f"einsum: {step!r} among the subscripts {text.strip()!r}; letters, and '...' for axes that broadcast, "
                f"are needed{at(user_line())}"
            )
        found.append(step)
        rest = rest[len(step) :]
    return found


def _numbers(x: Any) -> list[Label]:
    if not isinstance(x, tuple | list | range):
        raise ShapeError(f"einsum: subscripts {x!r}; a list of ints is needed after each array{at(user_line())}")
    found = [ELLIPSIS if k is Ellipsis else integer(k, "einsum", "a subscript") for k in x]
    if any(k != ELLIPSIS and not 0 <= int(k) < 52 for k in found):
        raise ShapeError(f"einsum: subscripts {found}; ints from 0 to 51 are needed{at(user_line())}")
    return found


def _expanded(
    arrays: Sequence[Any], inputs: Sequence[list[Label]], output: list[Label] | None
) -> tuple[list[Labels], Labels]:
    """Subscripts without ellipses: one for each axis of each array, and those of the result."""
    most = 0
    found = []
    for array, labels in zip(arrays, inputs, strict=True):
        told = len(labels) - labels.count(ELLIPSIS)
        if labels.count(ELLIPSIS) > 1 or told > array.ndim or (ELLIPSIS not in labels and told < array.ndim):
            raise ShapeError(
                f"einsum: subscripts {_text(labels)} for rank {array.ndim}; one for each axis is needed, or one "
                f"ellipsis for the others{at(user_line())}"
            )
        found.append(_with_ellipsis(labels, array.ndim - told))
        most = max(most, array.ndim - told)
    if output is not None:
        _check_output(inputs, output, most)
        return found, _with_ellipsis(output, most)
    times = Counter(x for labels in inputs for x in labels if x != ELLIPSIS)
    alone = sorted((x for x, n in times.items() if n == 1), key=lambda x: (isinstance(x, str), x))
    return found, (*_with_ellipsis([ELLIPSIS], most), *alone)


def _with_ellipsis(labels: Sequence[Label], count: int) -> Labels:
    """An ellipsis as so many axes, numbered from the last one, at which they are aligned."""
    return tuple(y for x in labels for y in (range(-count, 0) if x == ELLIPSIS else (x,)))


def _check_output(inputs: Sequence[list[Label]], output: list[Label], most: int) -> None:
    known = {x for labels in inputs for x in labels} | {ELLIPSIS}
    if any(n > 1 for n in Counter(output).values()) or not set(output) <= known:
        raise ShapeError(
            f"einsum: subscripts {_text(output)} of the result; each is needed once, and in an array{at(user_line())}"
        )
    if most and ELLIPSIS not in output:
        raise ShapeError(
            f"einsum: subscripts {_text(output)} of the result, and {most} axes that broadcast; an ellipsis is needed "
            f"for them{at(user_line())}"
        )


def _text(labels: Sequence[Label]) -> str:
    return repr("".join(map(str, labels)) if all(isinstance(x, str) for x in labels) else list(labels))


# Operands.


def _diagonals(trace: Trace, array: TracedArray, labels: Labels) -> tuple[TracedArray, Labels]:
    """The array at equal indices along axes of one subscript."""
    while len(set(labels)) < len(labels):
        second = next(k for k, x in enumerate(labels) if x in labels[:k])
        first = labels.index(labels[second])
        if not trace.guard("==", array.type.shape[first], array.type.shape[second]):
            raise ShapeError(
                f"einsum: subscript {labels[second]!r} twice in an array of shape "
                f"{sizes_text(trace, array.type.shape)}; axes of one size are needed{at(user_line())}"
            )
        array = linalg.diagonal(array, 0, first, second)
        labels = (*(x for k, x in enumerate(labels) if k not in (first, second)), labels[second])
    return array, labels


def _terms(trace: Trace, arrays: Sequence[Any], labels: Sequence[Labels], dtype: np.dtype[Any]) -> list[Term]:
    """Operands of the dtype; an axis of size 1 where others have more is not theirs."""
    pairs = [_diagonals(trace, x, own) for x, own in zip(arrays, labels, strict=True)]
    sizes: dict[Label, Extent] = {}
    for array, own in pairs:
        for x, n in zip(own, array.type.shape, strict=True):
            sizes[x] = _joined(trace, x, sizes[x], n) if x in sizes else n
    found = []
    for array, own in pairs:
        value = converted(trace, array.read(), dtype, "einsum")
        kept = [k for k, x in enumerate(own) if trace.guard("==", array.type.shape[k], sizes[x])]
        if len(kept) < len(own):
            value = build.reshape(trace, value, tuple(array.type.shape[k] for k in kept))
        found.append(Term(value, tuple(own[k] for k in kept)))
    return found


def _joined(trace: Trace, label: Label, n: Extent, m: Extent) -> Extent:
    try:
        (size,) = broadcast_shapes(trace, "einsum", [(n,), (m,)])
    except ShapeError:
        name = f"subscript {label!r}" if isinstance(label, str) or label >= 0 else "an axis of the ellipsis"
        raise ShapeError(
            f"einsum: {name} has sizes {trace.hint(n)} and {trace.hint(m)}; equal sizes, or 1, are "
            f"needed{at(user_line())}"
        ) from None
    return size


# Contractions.


def _product(trace: Trace, terms: list[Term], wanted: Labels, path: Sequence[tuple[int, ...]]) -> Operand:
    """All operands along the path, then sums of what is left, in the order of the result."""
    left = list(terms)
    for step in path:
        picked = [left[k] for k in step]
        left = [t for k, t in enumerate(left) if k not in step]
        made = picked[0]
        for k, other in enumerate(picked[1:], 2):
            needed = {*wanted, *(x for t in (*left, *picked[k:]) for x in t.labels)}
            made = _pair(trace, made, other, needed, wanted)
        left.append(made)
    (last,) = left
    last = _reduced(trace, last, set(wanted))
    return build.transpose(trace, last.value, last.axes(wanted))


def _pair(trace: Trace, a: Term, b: Term, needed: set[Label], wanted: Labels) -> Term:
    """Two operands as one, without the subscripts that nobody needs any more, in the order of the result if both come
    in it."""
    a, b = _reduced(trace, a, {*needed, *b.labels}), _reduced(trace, b, {*needed, *a.labels})
    common = [x for x in a.labels if x in b.labels]
    inner, batch = [x for x in common if x not in needed], [x for x in common if x in needed]
    places = [[wanted.index(x) for x in t.labels if x not in common and x in wanted] for t in (a, b)]
    if all(places) and min(places[1]) < min(places[0]):
        a, b = b, a
    if inner:
        both = (a.axes(inner), b.axes(inner)), (a.axes(batch), b.axes(batch))
        rest = [x for t in (a, b) for x in t.labels if x not in common]
        return Term(contracted(trace, a.value, b.value, *both), (*batch, *rest))
    labels = (*a.labels, *(x for x in b.labels if x not in common))
    sizes = dict(zip((*b.labels, *a.labels), (*b.value.type.shape, *a.value.type.shape), strict=True))
    shape = tuple(sizes[x] for x in labels)
    return Term(summed(trace, _spread(trace, a, labels, shape), _spread(trace, b, labels, shape), ()), labels)


def _spread(trace: Trace, term: Term, labels: Labels, shape: tuple[Extent, ...]) -> Operand:
    """An operand under more subscripts than its own."""
    places = term.axes([x for x in labels if x in term.labels])
    value = build.transpose(trace, term.value, places)
    own = [k for k, x in enumerate(labels) if x in term.labels]
    return build.broadcast(trace, build.expand(trace, value, own, len(labels)), shape)


def _reduced(trace: Trace, term: Term, needed: set[Label]) -> Term:
    """Sums over the subscripts that nobody needs; integers stay in their dtype."""
    axes = tuple(k for k, x in enumerate(term.labels) if x not in needed)
    if not axes:
        return term
    labels = tuple(x for x in term.labels if x in needed)
    if term.value.type.dtype.kind == "b":
        return Term(of_bools(trace, reductions.max_, term.value, axes, False), labels)
    return Term(trace.emit1(reductions.sum_, term.value, axes=axes, keepdims=False), labels)


# Paths.


def _path(trace: Trace, terms: Sequence[Term], wanted: Labels, optimize: Any) -> list[tuple[int, ...]]:
    """Which operands meet at each step, by their places among those that are left; what a step makes comes last."""
    if optimize is False or optimize is None or len(terms) < 3:
        return _by_subscripts(terms)
    if isinstance(optimize, tuple | list) and optimize and optimize[0] == "einsum_path":
        steps = [tuple(integer(k, "einsum", "optimize") for k in step) for step in optimize[1:]]
        return _checked(steps, len(terms))
    letters = {x: chr(ord("a") + k) for k, x in enumerate(dict.fromkeys(x for t in terms for x in t.labels))}
    shapes = [tuple(trace.concrete(n, "einsum") for n in t.value.type.shape) for t in terms]
    text = ",".join("".join(letters[x] for x in t.labels) for t in terms)
    text += "->" + "".join(letters[x] for x in wanted)
    try:
        found, _ = np.einsum_path(text, *(np.broadcast_to(0.0, s) for s in shapes), optimize=optimize)
    except (TypeError, KeyError, ValueError) as error:
        raise ShapeError(f"einsum: optimize {optimize!r}; {error}{at(user_line())}") from None
    return [tuple(step) for step in found[1:]]


def _by_subscripts(terms: Sequence[Term]) -> list[tuple[int, ...]]:
    left = [set(t.labels) for t in terms]
    if len(left) == 1:
        return []
    steps: list[tuple[int, ...]] = []
    made = left.pop(0)
    while left:
        k = next((k for k, labels in enumerate(left) if labels & made), 0)
        # The first step begins with the first one; later ones with what was made, which comes last.
        steps.append((len(left), k) if steps else (0, k + 1))
        made = made | left.pop(k)
    return steps


def _checked(steps: list[tuple[int, ...]], count: int) -> list[tuple[int, ...]]:
    for step in steps:
        if len(set(step)) < len(step) or not step or not all(0 <= k < count for k in step):
            break
        count -= len(step) - 1
    else:
        if count == 1:
            return steps
    raise ShapeError(
        f"einsum: path {steps}; places of operands that are left, until one is, are needed{at(user_line())}"
    )


FUNCTIONS: tuple[ApiFunction, ...] = (ApiFunction("einsum", einsum, ("operands", "out"), False, np.einsum),)
