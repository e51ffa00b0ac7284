"""What the user's code asked of a traced value is told in its own words, and the cure is code that does the same."""

from __future__ import annotations

import bisect
import math
import re
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer.asking import instruction, question
from tenferro.tracer.lines import user_line

numpy = np  # as the cures call it
X = np.array([1.0, 2.5, 3.0, 4.0])
TABLE = [1.0, 2.5, 7.0]
Function = Callable[[Any], Any]


def _sorted_list(x: Any) -> Any:
    values = [x[1], x[0]]
    values.sort()
    return values


def _asserted(x: Any) -> Any:
    assert (x > 0).all(), "positive"
    return x


def _asserted_bare(x: Any) -> Any:
    assert x[0] > 0
    return x


def _branched(x: Any) -> Any:
    if x.any():
        return x
    return -x


def _raising(x: Any) -> Any:
    if not np.isfinite(x).all():
        raise ValueError("not finite")
    return x


def _looped(x: Any) -> Any:
    while x[0] < 10:
        x = x * 2
    return x


def _matched(x: Any) -> Any:
    match x[0]:
        case 1.0:
            return x
        case _:
            return -x


def _several_lines(x: Any) -> Any:
    return max(
        x[0],
        x[1],
    )


WORTH = r"of a traced value, which has no elements yet; "
SAME: dict[str, tuple[Function, str, str]] = {
    "max of two": (lambda x: max(x[0], x[1]), "max", "numpy.maximum(x[0], x[1])"),
    "max over lines": (_several_lines, "max", "numpy.maximum(x[0], x[1])"),
    "min of two": (lambda x: min(x[0], 2.0), "min", "numpy.minimum(x[0], 2.0)"),
    "max of an array": (lambda x: max(x), "max", "numpy.max(x)"),
    "max of a list": (lambda x: max([x[0], x[2]]), "max", "numpy.max(numpy.stack([x[0], x[2]]))"),
    "sorted": (lambda x: sorted(x), "sorted", "numpy.sort(x)"),
    "any": (lambda x: any(x > 2), "any", "numpy.any(x > 2)"),
    "all": (lambda x: all(x > 2), "all", "numpy.all(x > 2)"),
    "round": (lambda x: round(x[1]), "round", "numpy.round(x[1])"),
    "float": (lambda x: float(x[1]), "float", "x[1].astype(float)"),
    "int": (lambda x: int(x[1]), "int", "x[1].astype(int)"),
    "complex": (lambda x: complex(x[1]), "complex", "x[1].astype(complex)"),
    "math.sin": (lambda x: math.sin(x[1]), "math.sin", "numpy.sin(x[1])"),
    "math.hypot": (lambda x: math.hypot(x[0], x[1]), "math.hypot", "numpy.hypot(x[0], x[1])"),
    "math.pow": (lambda x: math.pow(x[1], 2), "math.pow", "numpy.pow(x[1], 2)"),
    "math.fsum": (lambda x: math.fsum(x), "math.fsum", "numpy.sum(x)"),
    "math.isclose": (lambda x: math.isclose(x[0], x[1]), "math.isclose", "numpy.isclose(x[0], x[1])"),
    "math.gcd": (lambda x: math.gcd(x.astype(int)[3], 6), "math.gcd", "numpy.gcd(x.astype(int)[3], 6)"),
    "in a list": (lambda x: x[0] in [1, 2, 3], "in", "numpy.any(numpy.array([1, 2, 3]) == x[0])"),
    "in a list by name": (lambda x: x[0] in TABLE, "in", "numpy.any(numpy.array(TABLE) == x[0])"),
    "in an array": (lambda x: 2.5 in x, "in", "numpy.any(x == 2.5)"),
    "not in": (lambda x: x[0] not in [1, 2], "not in", "numpy.all(numpy.array([1, 2]) != x[0])"),
    "list.index": (lambda x: TABLE.index(x[1]), "index", "numpy.argmax(numpy.array(TABLE) == x[1])"),
    "list.count": (lambda x: TABLE.count(x[1]), "count", "numpy.sum(numpy.array(TABLE) == x[1])"),
    "and": (lambda x: x[0] > 0 and x[1] > 3, "and", "numpy.logical_and(x[0] > 0, x[1] > 3)"),
    "or": (lambda x: x[0] > 0 or x[1] > 3, "or", "numpy.logical_or(x[0] > 0, x[1] > 3)"),
    "and of calls": (lambda x: x.any() and x.all(), "and", "numpy.logical_and(x.any(), x.all())"),
    "not": (lambda x: not x[0] > 0, "not", "numpy.logical_not(x[0] > 0)"),
    "chain": (lambda x: 0 < x[1] < 2, "and", "numpy.logical_and(0 < x[1], x[1] < 2)"),
    "choice": (lambda x: x if x[0] > 2 else -x, "if", "numpy.where(x[0] > 2, x, -x)"),
    "numpy.float32": (lambda x: np.float32(x[1]), "numpy.float32", "x[1].astype(numpy.float32)"),
}
LISTS: dict[str, tuple[Function, str]] = {
    "mean": (lambda x: np.mean([x, x * 2]), "numpy.mean(numpy.stack([x, x * 2]))"),
    "sum": (lambda x: np.sum([x[0], x[1]]), "numpy.sum(numpy.stack([x[0], x[1]]))"),
    "max": (lambda x: np.max((x, x * 2), axis=0), "numpy.max(numpy.stack((x, x * 2)), axis=0)"),
    "median": (lambda x: np.median([x, x]), "numpy.median(numpy.stack([x, x]))"),
    "sin": (lambda x: np.sin([x[0], x[1]]), "numpy.sin(numpy.stack([x[0], x[1]]))"),
    "dot": (lambda x: np.dot([x[0], x[1]], [1, 2]), "numpy.dot(numpy.stack([x[0], x[1]]), [1, 2])"),
    "matmul": (lambda x: np.matmul([[x[0], x[1]]], [1, 2]), "numpy.matmul(numpy.array([[x[0], x[1]]]), [1, 2])"),
    "maximum.reduce": (lambda x: np.maximum.reduce([x, x]), "numpy.maximum.reduce(numpy.stack([x, x]))"),
}
SAID: dict[str, tuple[Function, str]] = {
    "assert": (_asserted, "assert: " + WORTH + "tenferro.check.condition, message. raises where it fails"),
    "assert, bare": (_asserted_bare, "assert: " + WORTH + "tenferro.check.condition, message. raises where it fails"),
    "if": (_branched, "if: " + WORTH + r"numpy\.where\(x\.any\(\), a, b\) chooses by a traced condition"),
    "if, raise": (_raising, "if: " + WORTH + "return the condition and raise outside, where it is known"),
    "while": (_looped, "while: " + WORTH + "keep the while loop outside and jit its body"),
    "match": (_matched, "match: " + WORTH + r"numpy\.select\("),
    "comprehension": (lambda x: [v for v in x if v > 2], "if: " + WORTH + "a mask chooses elements"),
    "list.sort": (_sorted_list, "sort: " + WORTH + r"numpy\.sort\(numpy\.stack\(values\)\) sorts"),
    "max by key": (lambda x: max([x[0], x[1]], key=abs), "max: " + WORTH + r"x\[numpy\.argmax\(keys\)\]"),
    "bool": (lambda x: bool(x[0]), "bool: " + WORTH + r"numpy\.where\(x\[0\], a, b\)"),
    "range": (lambda x: range(x.astype(int)[0]), "range: " + WORTH + "an int argument or a size of x.shape"),
    "math.factorial": (lambda x: math.factorial(x.astype(int)[0]), "math.factorial: " + WORTH + "return the value and"),
    "bisect": (lambda x: bisect.bisect(TABLE, x[0]), "bisect.bisect: asks for the truth of a traced value, .* outside"),
    "chr": (lambda x: chr(x.astype(int)[0]), "chr: asks for the int of a traced value, .* call chr outside"),
    "testing": (lambda x: np.testing.assert_allclose(x, X), "numpy.testing.assert_allclose: " + WORTH + "return"),
    "%d": (lambda x: "%d" % x[0], "format: " + WORTH + "return it and format it outside"),  # noqa: UP031
    "%.2f": (lambda x: "%.2f" % x[0], "format: " + WORTH + "return it and format it outside"),  # noqa: UP031
    "f-string": (lambda x: f"{x[0]:.3f}", "format: " + WORTH + "return it and format it outside"),
    "standard library": (lambda x: statistics.fmean(x), r"statistics\.fmean: asks for the float of a traced value"),
    "float index": (lambda x: x[1.5], r"getitem: index 1\.5 of class float; integers, .* int\(i\) rounds a number"),
    "float slice": (lambda x: x[: x.shape[0] / 2], "getitem: slice bound of a traced float64; .* a // b divides sizes"),
    "float size": (lambda x: np.zeros(2.5), "zeros: size 2.5 of class float; an integer is needed, a // b divides"),
    "half a size": (lambda x: x.reshape(x.shape[0] / 2, 2), "reshape: size of a traced float64; an integer is needed"),
    "traced size": (lambda x: np.zeros(x.astype(int)[0]), "zeros: size of a traced int64, which is known only when"),
    "text size": (lambda x: np.ones("3"), "ones: size '3' of class str; an integer is needed"),
}


def _raised(function: Function) -> str:
    with pytest.raises((TypeError, IndexError)) as raised:
        tn.jit(function)(X)
    assert isinstance(raised.value, tn.TenferroError)
    text = str(raised.value)
    line = re.search(r" \(at .*test_asking\.py:(\d+)\)$", text)
    first = function.__code__.co_firstlineno
    assert line is not None and first <= int(line[1]) <= first + 6, text
    return text.removesuffix(line[0])


@pytest.mark.parametrize("name", SAME)
def test_the_cure_does_the_same(name: str) -> None:
    function, head, cure = SAME[name]
    text = _raised(function)
    assert text.startswith(f"{head}: {WORTH}{cure} "), text
    written = eval(f"lambda x: {cure}", globals())
    np.testing.assert_allclose(np.asarray(tn.jit(written)(X)), np.asarray(function(X)), rtol=1e-7)


@pytest.mark.parametrize("name", LISTS)
def test_lists_are_stacked(name: str) -> None:
    function, cure = LISTS[name]
    assert f"of a list of traced values, which have no elements yet; {cure} takes them as one array" in _raised(
        function
    )
    np.testing.assert_allclose(tn.jit(eval(f"lambda x: {cure}", globals()))(X), function(X))


@pytest.mark.parametrize("name", SAID)
def test_said(name: str) -> None:
    function, text = SAID[name]
    assert re.match(text, _raised(function)), _raised(function)


def test_without_source_the_question_is_told_by_its_kind() -> None:
    function = eval(compile("lambda x: x if x[0] > 0 else -x", "<nowhere>", "eval"))
    with pytest.raises(tn.TraceError, match=r"^bool: .*numpy\.where\(condition, a, b\).*\(at <nowhere>:1\)"):
        tn.jit(function)(X)


def test_a_function_that_is_not_the_users() -> None:
    with pytest.raises(tn.TraceError, match=r"^float: of a traced value, .*test_asking"):
        tn.jit(math.sin)(2.5)


def test_a_type_error_of_the_users_own_is_not_replaced() -> None:
    def function(x: Any) -> Any:
        raise TypeError("mine")

    with pytest.raises(TypeError, match=r"^mine$"):
        tn.jit(function)(X)


def test_an_instruction_stands_before_its_cache_entries() -> None:
    def called() -> Any:
        import sys

        return instruction(sys._getframe(1))[0], question(), user_line()

    name, _, _ = called()
    assert name.startswith("CALL")
