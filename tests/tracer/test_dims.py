"""Sizes in normal form: whatever is simplified keeps its value, and the text is what Python makes the value of."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from typing import Any

import pytest

from tenferro.tracer.dims import (
    Extent,
    Leaf,
    add,
    evaluate,
    floordiv,
    is_natural,
    leaf,
    maximum,
    minimum,
    mod,
    mul,
    sub,
    substitute,
    walk_text,
)

D, E, R = leaf("extent", 0, 0), leaf("extent", 0, 1), leaf("runtime", 3, 0)
N, M = leaf("int", 1), leaf("int", 2)
LEAVES = {"d0_0": D, "d0_1": E, "r3_0": R, "n1": N, "n2": M}
RULES: tuple[tuple[Callable[[Extent, Extent], Extent], Callable[[int, int], int]], ...] = (
    (add, operator.add), (sub, operator.sub), (mul, operator.mul), (minimum, min), (maximum, max),
    (floordiv, operator.floordiv), (mod, operator.mod),
)  # fmt: skip


def expression(draw: random.Random, depth: int) -> tuple[Extent, Callable[[dict[str, int]], int]]:
    """An expression in normal form, and the same as it was asked for."""
    if depth == 0 or draw.random() < 0.15:
        if draw.random() < 0.3:
            number = draw.randint(-6, 6)
            return number, lambda env: number
        name = draw.choice(list(LEAVES))
        return LEAVES[name], lambda env: env[name]
    rule, plain = draw.choice(RULES)
    left, first = expression(draw, depth - 1)
    right, second = expression(draw, depth - 1)
    if rule in (floordiv, mod):  # by a constant, or by a size that is not 0
        name, number = draw.choice(["d0_0", "d0_1"]), draw.choice([1, 2, 3, 4, 6, -2, -3])
        if draw.random() < 0.8:
            right, second = number, lambda env: number
        else:
            right, second = LEAVES[name], lambda env: env[name]
    return rule(left, right), lambda env: plain(first(env), second(env))


def environments(draw: random.Random) -> list[dict[str, int]]:
    sizes = [{"d0_0": draw.randint(1, 30), "d0_1": draw.randint(1, 30), "r3_0": draw.randint(0, 9)} for _ in range(20)]
    return [{**env, "n1": draw.randint(-20, 20), "n2": draw.randint(-20, 20)} for env in sizes]


def values(env: dict[str, int]) -> dict[Leaf, int]:
    return {Leaf("extent", 0, 0): env["d0_0"], Leaf("extent", 0, 1): env["d0_1"], Leaf("runtime", 3, 0): env["r3_0"],
            Leaf("int", 1): env["n1"], Leaf("int", 2): env["n2"]}  # fmt: skip


@pytest.mark.parametrize("seed", range(300))
def test_values_and_texts(seed: int) -> None:
    draw = random.Random(seed)
    made, asked = expression(draw, draw.randint(1, 5))
    code = compile(str(made), "text", "eval")
    rebuilt = substitute(made, lambda x: leaf(x.kind, x.index, x.axis))
    for env in environments(draw):
        wanted = asked(env)
        assert evaluate(made, values(env)) == wanted, made
        assert eval(code, {"min": min, "max": max}, env) == wanted, made
        assert evaluate(rebuilt, values(env)) == wanted
        assert wanted >= 0 or not is_natural(made), made


TEXTS: dict[str, Extent] = {
    "d0_0//2": floordiv(D, 2),
    "8*(d0_0//2)*d0_1": mul(mul(floordiv(D, 2), E), 8),
    "-(d0_0//2)": mul(floordiv(D, 2), -1),
    "d0_0 - d0_0//2": sub(D, floordiv(D, 2)),
    "n2 - n1 + 1": add(sub(M, N), 1),
    "-n1 - 1": sub(mul(N, -1), 1),
    "(n1 + 1) % 4": mod(add(N, 1), 4),
    "(d0_0*d0_1)//4": floordiv(mul(D, E), 4),
    "d0_0//(2*d0_1)": floordiv(D, mul(E, 2)),
    "min(d0_0, d0_1, n1)": minimum(minimum(E, D), N),
    "max(0, n1 - 2)": maximum(sub(N, 2), 0),
}


@pytest.mark.parametrize("text", TEXTS)
def test_texts(text: str) -> None:
    assert str(TEXTS[text]) == text


SIMPLER: dict[str, tuple[Any, Any]] = {
    "a stride of 1": (add(floordiv(sub(D, 1), 1), 1), D),
    "a stride of 2 from 1": (floordiv(add(maximum(sub(D, 1), 0), 1), 2), floordiv(D, 2)),
    "multiples": (floordiv(add(mul(D, 4), 3), 4), D),
    "multiples beside others": (floordiv(add(mul(D, 2), N), 2), add(D, floordiv(N, 2))),
    "constants": (floordiv(sub(N, 1), 2), sub(floordiv(add(N, 1), 2), 1)),
    "quotients of quotients": (floordiv(floordiv(N, 2), 3), floordiv(N, 6)),
    "rests of multiples": (mod(add(mul(D, 4), N), 4), mod(N, 4)),
    "what is never negative": (maximum(0, add(D, E)), add(D, E)),
    "the larger of two": (maximum(D, add(D, R)), add(D, R)),
    "the smaller of two": (minimum(add(mul(D, E), D), D), D),
}


@pytest.mark.parametrize("case", SIMPLER)
def test_what_is_equal_has_one_form(case: str) -> None:
    made, simple = SIMPLER[case]
    assert made == simple


def test_int_arguments_may_be_negative() -> None:
    assert maximum(0, N) != N and not is_natural(N) and is_natural(mul(D, E)) and not is_natural(sub(D, 1))


@pytest.mark.parametrize(
    ("offset", "step", "text"),
    [(0, 1, "i"), (0, -1, "-i"), (-1, 1, "i - 1"), (2, 3, "3*i + 2"), (sub(D, 1), -1, "d0_0 - 1 - i"),
     (mul(D, -1), 1, "i - d0_0"), (D, -2, "d0_0 - 2*i"), (0, -2, "-2*i")],
)  # fmt: skip
def test_walks(offset: Extent, step: int, text: str) -> None:
    assert walk_text(offset, step) == text
