"""Sizes under tracing: arithmetic, comparisons as guards with lines, pins, unification, run-time extents."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer.dims import DimExpr
from tenferro.tracer.errors import LeakError, ShapeError, TraceError
from tests.tracer.tracing import Run, agrees, guards, op_names, run, run_traced, traced


def test_shapes_hold_sizes_that_say_they_are_ints() -> None:
    def f(x: Any) -> Any:
        n = x.shape[0]
        assert isinstance(n, int) and not issubclass(type(n), int)
        assert x.ndim == 2 and x.size == 12
        return None

    assert guards(traced(f, np.ones((3, 4)))) == ["d0_0*d0_1 == 12"]


ARITHMETIC: list[Callable[[Any, Any], Any]] = [
    lambda n, m: n + m, lambda n, m: n - 2 * m, lambda n, m: -n, lambda n, m: n * m + 1, lambda n, m: (n + m) // 3,
    lambda n, m: -n // m, lambda n, m: n % m, lambda n, m: 100 // n, lambda n, m: 100 % n, lambda n, m: abs(m - n),
    lambda n, m: n**2, lambda n, m: 1 - n, lambda n, m: np.minimum(n, m), lambda n, m: np.maximum(n, 9),
    lambda n, m: divmod(n, m), lambda n, m: 7 * n // n, lambda n, m: n + np.int64(2), lambda n, m: n << 2,
    lambda n, m: n >> 1, lambda n, m: math.prod((n, m, 2)), lambda n, m: round(n), lambda n, m: +n,
    lambda n, m: np.int64(2) + n, lambda n, m: np.int64(20) % n, lambda n, m: np.uint8(2) * m,
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(ARITHMETIC)))
def test_arithmetic_needs_no_number(number: int) -> None:
    operation = ARITHMETIC[number]

    def f(x: Any) -> Any:
        return operation(*x.shape)

    result = traced(f, np.ones((5, 3)))
    for shape in ((5, 3), (8, 3), (4, 7), (1, 1), (2, 9)):
        assert np.array_equal(run_traced(result, np.ones(shape)), operation(*shape))


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        (lambda n, m: n > 3, "3 < d0_0"),
        (lambda n, m: 3 >= n, "3 < d0_0"),
        (lambda n, m: n < 3, "3 <= d0_0"),
        (lambda n, m: n == m, "d0_0 != d0_1"),
        (lambda n, m: n != 5, "d0_0 == 5"),
        (lambda n, m: n > m, "d0_1 < d0_0"),
        (lambda n, m: n - 1 >= m + 1, "d0_1 + 2 <= d0_0"),
        (lambda n, m: n > 2.5, "3 <= d0_0"),
        (lambda n, m: n <= 2.5, "2 < d0_0"),
        (lambda n, m: n == 2.5, None),
        (lambda n, m: n < math.inf, None),
        (lambda n, m: n >= 0, None),
        (lambda n, m: n == n, None),
        (lambda n, m: bool(n), "d0_0 != 0"),
        (lambda n, m: n * m == 0, "d0_0*d0_1 != 0"),
    ],
)
def test_comparisons_are_guards(condition: Callable[[Any, Any], bool], text: str | None) -> None:
    def f(x: Any) -> Any:
        return bool(condition(*x.shape))

    result = traced(f, np.ones((5, 3)))
    assert guards(result) == ([] if text is None else [text])
    assert run_traced(result, np.ones((5, 3))) == condition(5, 3)
    if text is not None:
        line = result.program.guards[0].line
        assert line is not None and line.file == __file__


def test_what_a_guard_implies_is_not_recorded_again() -> None:
    def f(x: Any) -> Any:
        n = x.shape[0]
        return n > 4 and n >= 2 and n != 1 and not n < 5 and n + 1 > 0

    assert guards(traced(f, np.ones(6))) == ["4 < d0_0"]


@pytest.mark.parametrize(
    "use",
    [
        int, hash, list.__mul__.__get__([0]), lambda n: list(range(n)), lambda n: "%d".__mod__(n), math.sqrt, float,
        lambda n: [1, 2, 3, 4, 5, 6][n], lambda n: n & 1, lambda n: 2**n, lambda n: {n: 1},
    ],
)  # fmt: skip
def test_what_needs_the_number_pins_the_size(use: Callable[[Any], Any]) -> None:
    def f(x: Any) -> Any:
        use(x.shape[0])

    assert guards(traced(f, np.ones(5))) == ["d0_0 == 5"]


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (lambda n: int(n / 2), 2), (lambda n: float(n * 0.5), 2.5), (lambda n: math.ceil(n / 2), 3),
        (lambda n: n / 2 > 2, True),
        (lambda n: int(np.ceil(n / 2)), 3), (lambda n: [0, 1, 2, 3][int(np.sqrt(n))], 2), (lambda n: round(n / 3), 2),
    ],
)  # fmt: skip
def test_numbers_made_of_sizes_alone_pin_them(use: Callable[[Any], Any], expected: Any) -> None:
    def f(x: Any) -> Any:
        found = use(x.shape[0])
        assert bool(found == expected)

    assert guards(traced(f, np.ones(5))) == ["d0_0 == 5"]


def test_len_and_iteration_pin() -> None:
    def f(x: Any) -> Any:
        assert len(x) == 2
        first, second = x
        return first + second

    assert guards(traced(f, np.ones((2, 3)))) == ["d0_0 == 2"]


def test_sizes_are_weak_numbers() -> None:
    def f(x: Any) -> Any:
        n = x.shape[0]
        return x.sum() / n, x * n, n / 2, x + n / 2, n * 0.5 + x, x**1 / (n - 1), 1.5**2 * n

    for dtype in ("f2", "f4", "f8", "i4"):
        x = np.arange(5).astype(dtype)
        result = traced(f, x)
        assert guards(result) == (["d0_0 <= 2147483647"] if dtype == "i4" else [])
        want = f(x)
        for got, expected in zip(run_traced(result, x), want, strict=True):
            assert np.asarray(got).dtype == np.asarray(expected).dtype
            np.testing.assert_allclose(got, expected, rtol=1e-2)


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (str, "7"), (repr, "7"), (lambda n: f"{n}", "7"), (lambda n: f"{n!r:>3}", "  7"), (lambda n: f"{n:03d}", "007"),
        (lambda n: f"{n:.1f}", "7.0"), ("%d".__mod__, "7"), ("%5.1f".__mod__, "  7.0"), ("%s".__mod__, "7"),
        (lambda n: f"{(n, 2 * n)}", "(7, 14)"), ("{0} {0}".format, "7 7"),
        (lambda n: {f"layer{n}": "seven"}["layer7"], "seven"), (lambda n: {7: "seven"}[n], "seven"),
        (lambda n: {n: "seven"}[7], "seven"), (lambda n: "seven" * (n in {7}), "seven"),
    ],
)  # fmt: skip
def test_text_and_keys_are_those_of_the_number_and_pin_it(use: Callable[[Any], str], text: str) -> None:
    texts: list[str] = []

    def f(x: Any) -> Any:
        texts.append(use(x.shape[0]))
        return x

    assert guards(traced(f, np.ones(7))) == ["d0_0 == 7"]
    assert texts == [text]


def test_text_of_a_run_time_extent_is_refused() -> None:
    for text in (str, repr, lambda n: f"{n}", lambda n: f"{(n,)}"):
        with pytest.raises(TraceError, match=r"text of \(number of elements selected\): a size known only when the pr"):
            traced(lambda x, text=text: text(x[x > 0].shape[0]), np.ones(3))


@dataclass
class Sized:
    x: Any
    n: Any = field(metadata={"static": True})


@pytest.mark.parametrize(
    "make",
    [
        lambda n, x: {n: x}, lambda n, x: {(n, "a"): [x]}, lambda n, x: defaultdict(list, {n: x}),
        lambda n, x: Sized(x, n), lambda n, x: Sized({n: x}, (n, [n])),
    ],
)  # fmt: skip
def test_sizes_in_the_structure_of_a_result_are_numbers(make: Callable[[Any, Any], Any]) -> None:
    jitted = tn.jit(lambda x: make(x.shape[0], x * 2))
    for n in (3, 4):
        x = np.ones(n)
        got, want = jitted(x), make(n, x * 2)
        assert repr(got) == repr(want)
    assert jitted.cache_info().compiles == 2


def test_a_pinned_size_has_its_line() -> None:
    @tn.jit
    def f(x: Any) -> Any:
        names = {f"w{x.shape[0]}": 2.0}
        return x * names.get("w3", 1.0)

    for n in (3, 4, 3):
        assert f(np.ones(n)).tolist() == [2.0 if n == 3 else 1.0] * n
    first = f.explain().traces[0].guards[0]
    assert first.startswith("x.shape[0] == 3 (at ") and first.endswith("(the text of a size pins it)")


def test_int_arguments_are_sizes() -> None:
    def f(x: Any, n: int) -> Any:
        return np.zeros(n), np.arange(n) * x, x[:n], x * n

    result = traced(f, np.float64(2.0) * np.ones(6), 6)
    assert [i.kind for i in result.program.inputs] == ["argument", "int"]
    assert "n1 == d0_0" in guards(result)
    agrees(lambda x, n: (x * n, np.zeros((n, 2)), x.sum() / n), np.ones(3), 4)


def test_equal_sizes_become_one_leaf() -> None:
    def f(x: Any, y: Any, z: Any) -> Any:
        return x + y, y[1:] * z

    result = traced(f, np.ones((4, 3)), np.ones((4, 3)), np.ones((3, 3)))
    shapes = [i.value.type.shape for i in result.program.inputs]
    assert shapes[0] == shapes[1]
    assert all(isinstance(n, DimExpr) for n in shapes[0])
    for number, operation in enumerate(result.program.operations):
        if operation.op.name in ("add", "multiply"):
            left, right = (i.type.shape for i in operation.inputs)
            assert left == right == operation.outputs[0].type.shape, number
    assert not Run(result, (np.ones((4, 3)), np.ones((5, 3)), np.ones((3, 3)))).guards_hold
    wide = run_traced(result, np.ones((9, 5)), np.ones((9, 5)), np.ones((8, 5)))
    assert wide[1].shape == (8, 5)


def test_a_size_of_one_that_stretches_is_a_guard() -> None:
    result = traced(lambda x, y: x + y, np.ones((3, 1)), np.ones(4))
    assert "d0_1 == 1" in guards(result)
    assert op_names(result) == ["broadcast_to", "broadcast_to", "add"]
    assert not Run(result, (np.ones((3, 2)), np.ones(4))).guards_hold


def test_equality_is_asked_before_one() -> None:
    result = traced(lambda x, y: x + y, np.ones(1), np.ones(1))
    assert guards(result) == ["d0_0 == d1_0"]
    assert run_traced(result, np.ones(7), np.ones(7)).shape == (7,)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (np.s_[1:-1], []), (np.s_[2:], []), (np.s_[:-2], []), (np.s_[::2], []), (np.s_[::-1], []), (np.s_[1::3], []),
        (np.s_[:3], ["3 <= d0_0"]), (np.s_[-2:], ["2 <= d0_0"]), (np.s_[1:4], ["4 <= d0_0"]), (np.s_[3:1], []),
        (np.s_[2], ["2 < d0_0"]), (np.s_[-1], ["1 <= d0_0"]), (np.s_[::-2], []),
    ],
)  # fmt: skip
def test_slices_record_only_what_changes_their_meaning(key: Any, expected: list[str]) -> None:
    result = traced(lambda x: x[key], np.arange(6.0))
    assert guards(result) == expected
    for n in range(9):
        made = Run(result, (np.arange(float(n)),))
        if made.guards_hold:
            np.testing.assert_array_equal(made.results(), np.arange(float(n))[key])
        else:
            assert expected


@pytest.mark.parametrize("n", range(6))
@pytest.mark.parametrize("step", [1, 2, -1, -2])
def test_slices_clamp_as_in_numpy(n: int, step: int) -> None:
    bounds = [None, -7, -2, 0, 1, 3, 9]
    for start in bounds:
        for stop in bounds:
            agrees(lambda x, key=slice(start, stop, step): x[key], np.arange(float(n)))


def test_slices_by_sizes() -> None:
    def f(x: Any) -> Any:
        n = x.shape[0]
        half = n // 2
        return x[:half], x[half:], x[n - 1], x[-n:], x[half:n], x[: n + 3], x[n // 3 : -1]

    for n in (6, 7):
        agrees(f, np.arange(float(n)))
    result = traced(f, np.arange(6.0))
    for got, want in zip(run_traced(result, np.arange(9.0)), f(np.arange(9.0)), strict=True):
        np.testing.assert_array_equal(got, want)


def test_shifted_slices_have_one_size() -> None:
    result = traced(lambda x: x[1:][1:] + x[2:] + x[:-2] + x[1:-1], np.arange(5.0))
    assert not result.program.guards
    assert "reshape" not in op_names(result) and "broadcast_to" not in op_names(result)


def test_reshapes_cancel_common_sizes() -> None:
    result = traced(lambda x: x.reshape(-1, x.shape[2]), np.ones((3, 4, 5)))
    assert not result.program.guards
    assert run_traced(result, np.ones((2, 0, 7))).shape == (0, 7)
    split = traced(lambda x: x.reshape(-1, 4), np.ones(12))
    assert guards(split) == ["d0_0 == 4*(d0_0//4)"]
    assert not Run(split, (np.ones(13),)).guards_hold


def test_joined_pieces() -> None:
    def f(x: Any) -> Any:
        return np.concatenate([x[1:], x[:1]]) + x, np.stack([x, x[::-1]]).sum(axis=0)

    result = traced(f, np.arange(5.0))
    for n in (1, 5, 8):
        np.testing.assert_array_equal(run_traced(result, np.arange(float(n)))[0], f(np.arange(float(n)))[0])


def test_empty_reductions() -> None:
    assert guards(traced(lambda x: x.sum() + x.mean(), np.ones(3))) == []
    assert guards(traced(lambda x: x.max(), np.ones(3))) == ["0 < d0_0"]
    for function in (lambda x: x.max(), lambda x: x.argmin(0), lambda x: np.min(x, axis=0)):
        with pytest.raises(ShapeError, match=r"(max|argmin|min): zero-size array .* no identity; .* \(at .*:\d+\)"):
            traced(function, np.ones((0, 3)))
    agrees(lambda x: (x.max(axis=1), x.any(), x.all(), x.sum(0), x.argmax(1)), np.ones((0, 3)))


def test_run_time_extents() -> None:
    def f(x: Any, y: Any) -> Any:
        chosen = x[x > 0]
        return chosen * y[x > 0], chosen.mean(), chosen.shape[0], chosen / chosen.shape[0], np.zeros(chosen.shape)

    x, y = np.arange(-3.0, 4.0), np.ones(7)
    result = traced(f, x, y)
    got = run_traced(result, x, y)
    np.testing.assert_array_equal(got[0], [1, 2, 3])
    assert got[1] == 2 and got[2] == 3 and got[4].shape == (3,)
    np.testing.assert_array_equal(run_traced(result, -x[:2], y[:2])[0], [3, 2])


@pytest.mark.parametrize(
    "use",
    [
        lambda c: c.shape[0] > 3, lambda c: len(c), lambda c: c + np.ones(4), lambda c: int(c.shape[0]),
        lambda c: list(c), lambda c: c.shape[0] == 2,
    ],
)  # fmt: skip
def test_comparing_a_run_time_extent_is_refused(use: Callable[[Any], Any]) -> None:
    with pytest.raises(TraceError, match=r"a size known only when the program runs; .* \(at .*test_sizes\.py:\d+\)"):
        traced(lambda x: use(x[x > 0]), np.ones(5))


def test_a_leaked_size_says_where_it_was_made() -> None:
    kept: list[Any] = []

    def f(x: Any) -> Any:
        kept.append(x.shape[0])
        return x

    traced(f, np.ones(3))
    for use in (lambda n: n + 1, lambda n: n > 2, int, lambda n: np.zeros(3) * n, bool, str, "{}".format):
        with pytest.raises(
            LeakError, match=r"Dim x\.shape\[0\] = 3: used after the trace of f has ended; it was made at .*test_sizes"
        ):
            use(kept[0])
    assert repr(kept[0]) == "<size x.shape[0] = 3 of f>"  # debuggers ask


def test_division_by_a_size_that_is_zero() -> None:
    with pytest.raises(ZeroDivisionError, match=r"floor_divide: divisor x\.shape\[0\] = 0"):
        traced(lambda x: 4 // x.shape[0], np.ones(0))


def test_arrays_of_sizes() -> None:
    agrees(lambda x: np.array(x.shape) / 2, np.ones((3, 4)))
    assert run(lambda x: np.prod(x.shape), np.ones((3, 4))) == 12
