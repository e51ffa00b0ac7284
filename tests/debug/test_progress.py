"""``scan(progress=)``: how often the bar moves, and that nothing else differs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro import progress


class Fake:
    """A bar that notes what becomes of it."""

    made: list[Fake] = []

    def __init__(self, name: str, total: int) -> None:
        self.name, self.total, self.updates, self.is_closed = name, total, list[int](), False
        Fake.made.append(self)

    def update(self, turns: int) -> None:
        self.updates.append(int(turns))

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def bars(monkeypatch: Any) -> list[Fake]:
    Fake.made = []
    monkeypatch.setattr(progress, "_bar", Fake)
    return Fake.made


def body(c: Any, x: Any) -> Any:
    a, n = c
    a = np.sin(a) * x["u"] + x["v"].sum()
    return (a, n + 1), {"a": a, "twice": x["v"] * a}


def case(n: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(n)
    return (0.5, 0), {"u": rng.normal(size=n), "v": rng.normal(size=(n, 2))}


def flat(tree: Any) -> list[bytes]:
    return [np.asarray(x).tobytes() for x in tn.tree.leaves(tree)]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("n", [0, 1, 7, 100, 101, 250, 1000, 1234])
def test_the_bits_are_the_same_and_updates_are_few(n: int, reverse: bool, bars: list[Fake]):
    init, xs = case(n)
    plain = tn.jit(lambda i, xs: tn.lax.scan(body, i, xs, reverse=reverse))
    shown = tn.jit(lambda i, xs: tn.lax.scan(body, i, xs, reverse=reverse, progress="fit"))
    for _ in range(2):
        assert flat(plain(init, xs)) == flat(shown(init, xs))
        bar = bars.pop()
        assert (bar.name, bar.total, sum(bar.updates), bar.is_closed) == ("fit", n, n, True)
        assert len(bar.updates) <= 100 and not bars


def test_outside_jit_in_gradients_and_lanes(bars: list[Fake]):
    def f(x: Any, how: Any) -> Any:
        return tn.lax.scan(lambda c, v: (c * v, c), 1.0, x, progress=how)[0]

    x = np.linspace(0.9, 1.1, 150)
    for make in (lambda f: f, tn.grad, lambda f: tn.jit(tn.grad(f)), tn.value_and_grad):
        shown = make(lambda x: f(x, True))(x)
        np.testing.assert_array_equal(
            np.asarray(tn.tree.leaves(shown)[-1]), np.asarray(tn.tree.leaves(make(lambda x: f(x, None))(x))[-1])
        )
        (bar,) = bars
        assert (bar.name, sum(bar.updates), len(bar.updates)) == ("scan", 150, 75)
        bars.clear()
    tn.vmap(lambda x: f(x, "lanes"))(np.stack([x, x]))
    (bar,) = bars
    assert sum(bar.updates) == 150


def test_scans_in_scans_have_bars_of_their_own(bars: list[Fake]):
    @tn.jit
    def f(x: Any) -> Any:
        def outer(c: Any, v: Any) -> Any:
            return tn.lax.scan(lambda d, w: (d + w * v, None), c, x, progress="inner")

        return tn.lax.scan(outer, 0.0, x, progress="outer")[0]

    assert f(np.arange(3.0)) == 9.0
    assert [(b.name, b.updates, b.is_closed) for b in bars] == [
        ("outer", [1, 1, 1], True), *[("inner", [1, 1, 1], True)] * 3,
    ]  # fmt: skip


def test_without_arrays_and_wrong_sizes(bars: list[Fake]):
    last, ys = tn.lax.scan(lambda c, _: (c + 1, c), 0, length=5, progress=True)
    assert last == 5 and ys.tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(tn.ShapeError, match="one number of turns is needed"):
        tn.lax.scan(body, (0.5, 0), {"u": np.ones(3), "v": np.ones((4, 2))}, progress=True)


def test_no_progress_is_no_callback():
    program = tn.jit(lambda x: tn.lax.scan(lambda c, v: (c + v, None), 0.0, x)[0]).trace(np.ones(3))
    assert not any(o.op.calls_host(o.params) for o in program.operations)


def test_the_line_on_stderr(capsys: Any):
    bar = progress.Line("fit", 4)
    for _ in range(2):
        bar.update(2)
    bar.close()
    written = capsys.readouterr().err
    assert [part.partition(" [")[0] for part in written.split("\r")[1:]] == [
        "fit:   0% 0/4",
        "fit:  50% 2/4",
        "fit: 100% 4/4",
    ]
    assert written.endswith("\n")


def test_tqdm_shows_the_bar(capsys: Any):
    pytest.importorskip("tqdm")
    tn.jit(lambda x: tn.lax.scan(lambda c, v: (c + v, None), 0.0, x, progress="fit")[0])(np.ones(300))
    written = capsys.readouterr().err
    assert "fit" in written and "300/300" in written
