"""Formulas of sizes: numbers that remember how they were computed, and what native code computes from other sizes."""

from __future__ import annotations

import operator
import random
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import tenferro as tn
from tenferro.engines.cpu import native, native_sizes
from tenferro.engines.cpu.direct import direct
from tenferro.engines.cpu.entries import Image
from tenferro.engines.cpu.hinted import Formula, Hinted, Unfollowed, hint
from tenferro.engines.cpu.kernel import FAST, GOOD
from tenferro.shortcuts import layouts_of
from tests.random_programs.generator import RandomProgram, generate
from tests.random_programs.statements import propose

Leaves = Sequence[int]


class Follower:
    """A formula and words that depend on it, as native code has them."""

    def __init__(self, formula: Formula, words: Sequence[Any]) -> None:
        patches = [(word, 8 * k) for k, word in enumerate(words) if isinstance(word, Hinted)]
        constants, lines = formula.written(patches)
        head = [len(formula.leaves), len(constants), 8 * len(lines)]
        self._formula = np.array([*head, *formula.leaves, *constants, *lines], np.int64)
        self.words = np.array([hint(word) for word in words], np.int64)

    def at(self, leaves: Leaves) -> list[int] | None:
        """The words at other leaves, None where a condition does not hold."""
        numbers = np.zeros(native_sizes.MAX_NUMBERS, np.int64)
        numbers[: len(leaves)] = leaves
        follow = native.function("follow")
        served = follow(*(int(x.ctypes.data) for x in (self._formula, numbers, self.words)))
        return self.words.tolist() if served else None


def compared(function: Callable[..., Any], first: Leaves, others: Sequence[Leaves]) -> int:
    """``function`` of leaves gives ints; what native code computes at other leaves is what Python does, where it
    follows. How often it does."""
    formula = Formula()
    found = function(*[formula.leaf(n) for n in first])
    assert [hint(x) for x in found] == list(function(*first))
    follower = Follower(formula, found)
    served = 0
    for leaves in (first, *others, first):
        words = follower.at(leaves)
        if words is not None:
            assert words == list(function(*leaves)), (first, leaves)
            served += 1
    assert follower.at(first) is not None
    return served


INTEGERS = [operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, divmod, min, max]
NUMBERS = [-(2**62), -(2**40) - 1, -17, -3, -2, -1, 0, 1, 2, 3, 5, 16, 17, 1000, 2**31, 2**40, 2**61, 2**62]


@pytest.mark.parametrize("apply", INTEGERS, ids=lambda f: f.__name__)
def test_integers(apply):
    def f(a: Any, b: Any) -> list[Any]:
        found = apply(a, b)
        return list(found) if isinstance(found, tuple) else [found]

    pairs = [(a, b) for a in NUMBERS for b in NUMBERS if not (apply in INTEGERS[3:6] and b == 0)]
    small = [p for p in pairs if all(abs(x) <= 2**62 for x in f(*p))]
    for first in ((17, 5), (-17, 5), (17, -5), (3, 3), (0, 1)):
        compared(f, first, small)


def test_numbers_that_leave_the_range_are_not_served():
    for f in (lambda a, b: [a * b], lambda a, b: [a + b], lambda a, b: [a - b], lambda a, b: [a // b, a % b]):
        formula = Formula()
        follower = Follower(formula, f(formula.leaf(5), formula.leaf(3)))
        assert follower.at((5, 3)) is not None
    formula = Formula()
    follower = Follower(formula, [formula.leaf(5) * formula.leaf(3)])
    assert follower.at((2**40, 2**40)) is None and follower.at((-(2**63), -1)) is None
    assert follower.at((2**31, 2**31)) == [2**62]
    formula = Formula()
    follower = Follower(formula, [formula.leaf(5) + formula.leaf(3)])
    assert follower.at((2**63 - 1, 1)) is None and follower.at((-(2**63), -1)) is None
    formula = Formula()
    follower = Follower(formula, [formula.leaf(5) // formula.leaf(3)])
    assert follower.at((5, 0)) is None and follower.at((7, -1)) == [-7] and follower.at((-7, 2)) == [-4]
    with pytest.raises(Unfollowed):
        Formula().leaf(2**63)
    formula = Formula()
    with pytest.raises(Unfollowed):
        _ = formula.leaf(2**40) * formula.leaf(2**40)
    with pytest.raises(ZeroDivisionError):
        _ = formula.leaf(3) // formula.leaf(0)


def estimate(n: Any, m: Any) -> list[Any]:
    """As launches are estimated."""
    seconds = 15e-9 + n * (m * 0.06e-9 + 1e-10)
    total = -(-n // 7)
    grain = max(1, min(total, round(40e-6 / (seconds / total))))
    heavy = seconds * total > 50e-6
    return [total, grain, int(heavy), round(seconds * 1e12), round(n / m), round(0.5 * n)]


def test_floats():
    sizes = [1, 2, 3, 5, 7, 8, 9, 50, 99, 1000, 12_345, 10**6]
    others = [(n, m) for n in sizes for m in sizes]
    served = [compared(estimate, first, others) for first in ((10, 10), (1000, 7), (10**6, 1000), (1, 1))]
    assert min(served) > 3 and max(served) > 50


def test_bare_numbers_are_conditions():
    for use in (
        range,
        hash,
        lambda n: [0] * n,
        lambda n: f"{n}",
        str,
        int,
        float,
        lambda n: "abcdefgh"[n],
        lambda n: n * 1 | 0,
    ):
        formula = Formula()
        n = formula.leaf(4)
        try:
            use(n)
        except TypeError:
            continue  # refused, which no condition has to say
        follower = Follower(formula, [n * 2])
        assert follower.at((4,)) == [8] and follower.at((5,)) is None, use
        assert not formula.is_open()


def test_comparisons_are_conditions_and_no_more():
    def f(n: Any, m: Any) -> list[Any]:
        found = [
            n < m,
            n <= m,
            n > m,
            n >= m,
            n == m,
            n != m,
            n < 10,
            10 <= n,
            n == 10,
            bool(n),
            not m,
            10 > n,
            n in (1, m),
        ]
        return [int(x) for x in found]

    others = [(a, b) for a in range(-2, 13) for b in range(-2, 13)]
    for first in ((3, 5), (5, 3), (4, 4), (10, 0), (0, 0), (1, 12)):
        assert compared(f, first, others) > 1


def test_what_was_computed_alike_is_computed_once():
    formula = Formula()
    n, m = formula.leaf(6), formula.leaf(7)
    for _ in range(10):
        assert n * m + 1 == 43 and n * m + 1 != 44 and n - n == 0 and n * 1 is n and n // 1 is n and n * 0 == 0
    assert len(formula.lines) == 4  # the product, the sum, and what became of the two comparisons


def test_too_many_numbers():
    formula = Formula()
    n = formula.leaf(3)
    total: Any = 0
    for k in range(2 * native_sizes.MAX_NUMBERS):
        total = total + (n + k)
        if len(formula.lines) > native_sizes.MAX_NUMBERS:
            break
    with pytest.raises(Unfollowed):
        formula.written([(total, 0)])
    with pytest.raises(Unfollowed):
        for k in range(2 * native_sizes.MAX_LINES):
            assert n < k + 4


# -- programs ----------------------------------------------------------------------------------------------------------


def flat(inputs: Sequence[Any]) -> list[int]:
    """The leaves of a call."""
    found: list[int] = []
    for x in inputs:
        found += [x] if isinstance(x, int) else [*x.shape, *x.strides]
    return found


def words_differ(jitted: Any, first: Sequence[Any], others: Sequence[Sequence[Any]]) -> tuple[int, int]:
    """Bind the program for the first inputs with a formula; its words at others are those that binding these gives,
    where it serves them. How often the program serves them, and the formula does."""
    (group,) = jitted._programs._kept.values()
    compiled = next(c for c in group if c.guard(first))
    made = compiled.prepared.flat
    formula = Formula()
    level = GOOD if any(b.level == GOOD for b in made._bound.values()) else FAST
    shortcut = compiled.shortcut_of_sizes(layouts_of(formula, first), False)
    assert all(type(n) is int for k in made.table.kernels() for n in (k.variant.short, *k.variant.loops))
    if shortcut is None:
        return 0, 0
    numbers = {k: k for k in range(len(first))}
    image = Image(shortcut, numbers, [])
    follower = Follower(formula, [0])
    follower._formula = np.array(formula.words(image.followed), np.int64)
    follower.words = image.words
    possible = served = 0
    for inputs in (first, *others):
        fits = [t.value.type for t in compiled.program.inputs]
        is_fixed = all(
            all(not isinstance(n, int) or n == m for n, m in zip(t.shape, np.shape(x), strict=True))
            for t, x in zip(fits, inputs, strict=True)
        )
        possible += compiled.guard(inputs) and is_fixed
        words = follower.at(flat(inputs))
        if words is None:
            continue
        served += 1
        assert compiled.guard(inputs) and is_fixed
        bound = made._binder(made.plan, inputs, level).bind(0)
        exact = direct(bound, len(inputs))
        assert exact is not None
        expected = Image(exact.shortcut(None, 1, -1), numbers, []).words.tolist()
        assert words == expected, [(k, a, b) for k, (a, b) in enumerate(zip(words, expected, strict=False)) if a != b]
    return possible, served


def normalized(a: Any) -> Any:
    return (a - a.mean(axis=1, keepdims=True)) / a.std(axis=1, keepdims=True)


PROGRAMS: list[tuple[str, Callable[..., Any], Callable[[int, int], Sequence[Any]]]] = [
    ("add", lambda a, b: a + b, lambda n, m: (np.ones(n), np.ones(n))),
    ("strided", lambda a, b: a * b, lambda n, m: (np.ones((n, 2 * m))[:, ::2], np.ones((m, n)).T)),
    ("broadcast", lambda a, b: a + b, lambda n, m: (np.ones((n, m)), np.ones(m))),
    ("sum", lambda a: a.sum(), lambda n, m: (np.ones((n, m)),)),
    ("rows", normalized, lambda n, m: (np.ones((n, m)),)),
    ("columns", lambda a: np.exp(a - a.max(axis=0)), lambda n, m: (np.ones((n, m)),)),
    ("product", lambda a, b: np.tanh(a @ b), lambda n, m: (np.ones((n, m)), np.ones((m, 3)))),
    ("views", lambda a: (a.T, a[1:, ::-1], a * 2), lambda n, m: (np.ones((n, m)),)),
    ("concatenate", lambda a, b: np.concatenate([a, b]) * 2, lambda n, m: (np.ones(n), np.ones(m))),
    ("sizes as numbers", lambda a: a / a.shape[0] + a.shape[1], lambda n, m: (np.ones((n, m)),)),
    ("reshape", lambda a: a.reshape(-1) + 1, lambda n, m: (np.ones((n, m)),)),
    ("an int", lambda a, k: a * k + k, lambda n, m: (np.ones(n), m)),
    ("slices by an int", lambda a, k: a[k:] - a[:-k], lambda n, m: (np.ones(n + m + 1), m)),
    ("several results", lambda a, b: (a @ b, a.sum(axis=0), b * 2), lambda n, m: (np.ones((n, m)), np.ones((m, n)))),
    ("temporaries", lambda a: ((a @ a.T).sum(axis=1) * 2) @ a, lambda n, m: (np.ones((n, m)),)),
]  # fmt: skip


@pytest.mark.parametrize(("f", "make"), [p[1:] for p in PROGRAMS], ids=[p[0] for p in PROGRAMS])
def test_words_are_those_of_the_binder(f, make):
    rng = random.Random(0)
    jitted = tn.jit(f)
    pairs = [
        (rng.choice((1, 2, 3, 9, 40, 300)) + rng.randrange(9), rng.choice((1, 2, 7, 33)) + rng.randrange(9))
        for _ in range(60)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        calls = [make(n, m) for n, m in pairs]
        jitted(*make(12, 6))
        total = 0
        for first in (make(12, 6), *calls[:6]):
            jitted(*first)
            _, served = words_differ(jitted, first, calls)
            total += served
    assert total > 20


@st.composite
def programs(draw: st.DrawFn) -> RandomProgram:
    return generate(lambda n: draw(st.integers(0, n - 1)), propose)


@settings(max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(program=programs(), seed=st.integers(0, 1000))
def test_words_of_random_programs(program: RandomProgram, seed: int) -> None:
    rng = random.Random(seed)
    names = list(program.sizes[0])
    others = [{k: rng.choice((1, 2, 3, 5, 17, 70)) + rng.randrange(4) for k in names} for _ in range(12)]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        jitted = tn.jit(program.function())
        for sizes in program.sizes:
            first = program.inputs(sizes)
            jitted(*first)
            if len(jitted._programs._kept) == 1 and not any(
                c.has_late for g in jitted._programs._kept.values() for c in g
            ):
                words_differ(jitted, first, [program.inputs(o) for o in others])
