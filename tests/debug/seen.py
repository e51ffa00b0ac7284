"""What the tests of callbacks share: a callback that keeps what it was called with, and programs that call back."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenferro as tn

x3 = np.arange(3.0)
SCALAR = tn.ShapeDtypeStruct((), np.float64)


def like(x: Any) -> Any:
    return tn.ShapeDtypeStruct(x.shape, x.dtype)


class Seen:
    """What a callback was called with."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def __call__(self, *xs: Any) -> None:
        self.calls.append(tuple(np.asarray(x).tolist() for x in xs))

    def taken(self) -> list[Any]:
        found, self.calls = self.calls, []
        return found


def programs(call: Any, lib: Any) -> dict[str, Any]:
    """Functions of an array that call back, in tenferro's or JAX's words."""
    lax, np_ = lib

    def plain(x: Any) -> Any:
        call(x)
        return (x**2).sum()

    def scanned(x: Any) -> Any:
        def body(c: Any, v: Any) -> Any:
            call(c, v)
            return c * v + 1.0, c

        last, ys = lax.scan(body, x[0], x)
        return last + ys.sum()

    def looped(x: Any) -> Any:
        def body(c: Any) -> Any:
            call(c)
            return c * 2.0

        return lax.while_loop(lambda c: c < 10.0, body, x.sum())

    def counted(x: Any) -> Any:
        def body(i: Any, c: Any) -> Any:
            call(i, c)
            return c + np_.asarray(x)[i]

        return lax.fori_loop(0, 3, body, 0.5 * x[0])

    def chosen(x: Any) -> Any:
        def yes(v: Any) -> Any:
            call(v, 1.0)
            return (v * 2.0).sum()

        def no(v: Any) -> Any:
            return np_.sin(v).sum()

        return lax.cond(x[0] > 1.0, yes, no, x)

    def silent(x: Any) -> Any:
        def yes(v: Any) -> None:
            call(v)

        lax.cond(x[0] > 1.0, yes, lambda v: None, x)
        lax.scan(lambda c, v: (call(v), (None, None))[1], None, x)
        return x.sum()

    return {f.__name__: f for f in (plain, scanned, looped, counted, chosen, silent)}


NAMES = ("plain", "scanned", "looped", "counted", "chosen", "silent")
POINT = np.array([1.5, 2.0, 0.5])
