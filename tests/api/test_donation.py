"""Donated arguments: written in place, or a result's memory; refused with a reason; whole after an error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tenferro as tn
import tenferro.numpy as tnp
from tenferro.engines.cpu import toolchain
from tenferro.engines.cpu.poison import poisoned
from tenferro.lowering.memory import memory
from tenferro.lowering.plan import Plan
from tests.random_programs.generator import generate
from tests.random_programs.statements import propose
from tests.table.agreement import bits

if not toolchain.supported():
    pytest.skip("this machine is served by the reference engine", allow_module_level=True)

N = 24
Array = np.ndarray[Any, Any]


def array(seed: int = 0) -> Array:
    return np.random.default_rng(seed).random((N, N)) + 0.5


def sgd(w, g):
    return w - 0.1 * (g + 0.01 * w)


def softmax(x, _):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def after_a_seam(x, g):
    return np.cumsum(x, axis=0) * g


def product(x, w):
    return np.maximum(x @ w, 1)


def bare_product(x, w):
    y = np.sort(x, axis=0)
    return y @ w


def chain_of_updates(x, g):
    y = np.exp(x) + g
    y[1:-1] *= 2
    y[0] = g[1]
    return y


def written(x, g):
    x += g


def written_and_returned(x, g):
    x *= g
    return x, x.sum()


def boxes(x, g):
    x[1:-1, 1:-1] *= 0.5
    x[0] = g[0]
    x[:, -1] += g[:, 0]
    return x


def masked(x, g):
    x[x > g] = 0


def written_late(x, g):
    t = np.cumsum(x, axis=1)
    x[...] = t * g
    return t.sum()


def several_versions(x, g):
    x += g
    y = np.sort(x, axis=1)
    x *= y
    return y[0]


HONOURED: list[tuple[Callable[..., Any], str]] = [
    (sgd, "x: becomes output 0"),
    (softmax, "x: becomes output 0"),
    (after_a_seam, "x: becomes output 0"),
    (product, "x: becomes output 0"),
    (bare_product, "x: becomes output 0"),
    (chain_of_updates, "x: becomes output 0"),
    (written, "x: written in place"),
    (written_and_returned, "x: written in place"),
    (boxes, "x: written in place"),
    (masked, "x: written in place"),
    (written_late, "x: written in place"),
    (several_versions, "x: written in place"),
]
LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "C": lambda x: x.copy(),
    "F": np.asfortranarray,
    "steps": lambda x: np.repeat(np.repeat(x, 2, 0), 2, 1)[::2, ::2],
    "reversed": lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
}


def lasting(plan: Plan) -> list[int]:
    """The buffers that a run hands out."""
    return [b.slot for b in memory(plan).buffers if b.last is None]


def leaves(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def same(found: Any, expected: Any) -> None:
    for a, b in zip(leaves(found), leaves(expected), strict=True):
        if b is None:
            assert a is None
        else:
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-12)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("f", "told"), HONOURED, ids=[f.__name__ for f, _ in HONOURED])
def test_what_numpy_does(f: Callable[..., Any], told: str, layout: str) -> None:
    jitted, make = tn.jit(f, donate_argnums=0), LAYOUTS[layout]
    writes = told == "x: written in place"
    for turn in range(4):  # the long way, then the native one
        x, g = make(array(turn)), array(9)
        mine, other = x.copy(), g.copy()
        expected = f(mine, other)
        found = jitted(x, g)
        same(found, expected)
        if writes:
            same(x, mine)
        assert bits(g, array(9)) is None, "an argument that is not donated"
        for result in leaves(found):
            if isinstance(result, np.ndarray) and result is not x and not writes:
                assert result.flags.c_contiguous


@pytest.mark.parametrize(("f", "told"), HONOURED, ids=[f.__name__ for f, _ in HONOURED])
def test_the_memory_is_used(f: Callable[..., Any], told: str) -> None:
    jitted = tn.jit(f, donate_argnums=0)
    x, g = array(), array(1)
    lowered = jitted.lower(x, g)
    named = str(lowered.donations()[0]).replace("w:", "x:")
    assert named == told and lowered.donations()[0].honoured
    assert lowered.donate is not None
    used = lowered.donate()[0]
    assert used is not None and len(lasting(used)) == len(lasting(lowered.plan)) - 1
    assert lowered.memory().bytes <= replace(lowered, donate=None).memory().bytes
    before = x.ctypes.data
    found = jitted(x, g)
    assert x.ctypes.data == before
    if "becomes" in told:
        assert leaves(found)[0] is x


@pytest.mark.parametrize(("f", "told"), HONOURED, ids=[f.__name__ for f, _ in HONOURED])
def test_tenferro_arrays(f: Callable[..., Any], told: str) -> None:
    jitted = tn.jit(f, donate_argnums=0)
    for turn in range(4):
        x, g = tnp.asarray(array(turn)), tnp.asarray(array(9))
        mine, memory = array(turn), x._data
        expected = f(mine, array(9))
        found = jitted(x, g)
        same(found, expected)
        assert x._data is memory
        if told == "x: written in place":
            same(x, mine)
        else:
            assert leaves(found)[0]._data is memory


def test_the_native_way_is_taken() -> None:
    for f, _ in HONOURED:
        jitted = tn.jit(f, donate_argnums=0)
        seams = any(s.is_seam for s in jitted.lower(array(), array()).plan.steps if hasattr(s, "is_seam"))
        for turn in range(6):
            jitted(array(turn), array(9))
        assert (jitted._shortcuts is not None and jitted._shortcuts.hits > 0) != seams, f.__name__


def test_states_of_an_optimizer_stay_where_they_are() -> None:
    @tn.jit(donate_argnames=("weights", "state"))
    def step(weights, state, gradients):
        state = {k: 0.9 * v + gradients[k] for k, v in state.items()}
        return {k: w - 0.1 * state[k] for k, w in weights.items()}, state

    weights, state = {"a": array(0), "b": array(1)[:3]}, {"a": array(2), "b": array(3)[:3].copy()}
    held = [id(weights["a"]), id(state["a"]), id(state["b"])]
    assert [d.honoured for d in step.lower(weights, state, weights).donations()] == [False] * 2 + [True] * 2
    gradients = {"a": array(4), "b": array(5)[:3]}
    expected = {k: v.copy() for k, v in weights.items()}
    momenta = {k: v.copy() for k, v in state.items()}
    for _ in range(5):
        weights, state = step(weights, state, gradients=gradients)
        momenta = {k: 0.9 * v + gradients[k] for k, v in momenta.items()}
        expected = {k: w - 0.1 * momenta[k] for k, w in expected.items()}
    assert [id(weights["a"]), id(state["a"]), id(state["b"])] == held
    for k in expected:
        same((weights[k], state[k]), (expected[k], momenta[k]))


# -- refusals ----------------------------------------------------------------------------------------------------------


def shifted(x, _):
    x[1:] += x[:-1]


def shown_as_it_was(x, _):
    return x, x * 2


def seam_after(x, _):
    x *= 2
    return np.cumsum(x)


def check_after(x, g):
    x *= 2
    return np.take(g, (x[0] > 0).astype(np.int64), axis=0)


def read_later(x, g):
    y = x * 2
    return y, ((y @ g) * x).sum()


def made_by_numpy(x, _):
    return np.cumsum(x, axis=0)


def two_of_the_same(x, _):
    x += 1
    return x * 1.0


def smaller(x, _):
    return x[1:] * 2


def another_dtype(x, _):
    return x > 0


def selection(x, g):
    x *= 2
    return g[g > 1].sum()


REFUSED: list[tuple[Callable[..., Any], str]] = [
    (shifted, "written by a copy at the end; an update of it reads other elements, or something reads it later (at "),
    (seam_after, "written by a copy at the end; cumsum (at "),
    (check_after, "written by a copy at the end; a check (at "),
    (two_of_the_same, "written by a copy at the end; result 0 is to be another array of the same values"),
    (selection, "written by a copy at the end; mask_select (at "),
    (read_later, "not used; it is read after what it is to hold is made (at "),
    (made_by_numpy, "not used; cumsum (at "),
    (smaller, "not used; no result has its dtype and shape"),
    (another_dtype, "not used; no result has its dtype and shape"),
]


@pytest.mark.parametrize(("f", "told"), REFUSED, ids=[f.__name__ for f, _ in REFUSED])
def test_what_is_refused_is_copied(f: Callable[..., Any], told: str) -> None:
    jitted = tn.jit(f, donate_argnums=0)
    (donated,) = jitted.lower(array(), array(1)).donations()
    assert not donated.honoured and str(donated).startswith(f"x: {told}"), str(donated)
    for turn in range(4):
        x, mine = array(turn), array(turn)
        expected = f(mine, array(9))
        found = jitted(x, array(9))
        same(found, expected)
        same(x, mine)
        assert all(r is not x for r in leaves(found))


def test_an_argument_that_is_a_result_is_given_back_and_no_more() -> None:
    jitted = tn.jit(shown_as_it_was, donate_argnums=0)
    assert jitted.lower(array(), array()).donations() == ()
    x = array()
    as_it_was, doubled = jitted(x, array())
    assert as_it_was is x and doubled is not x and bits(x, array()) is None


def test_what_a_call_cannot_give_up() -> None:
    jitted = tn.jit(sgd, donate_argnums=0)
    x, g = array(), array(1)
    for _ in range(4):
        x = jitted(x, g)
    hits = jitted._shortcuts.hits
    assert hits > 0
    whole = array(3)
    expected = sgd(whole[1:], whole[:-1])
    for w, why in [
        (_read_only(array(3)), "it is read-only"),
        (array(3).astype(">f8"), "its byte order or alignment is not the machine's"),
        (np.broadcast_to(np.ones(N), (N, N)).view(), "it is read-only"),
        (np.lib.stride_tricks.as_strided(np.ones(N), (N, N), (0, 8)), "several of its elements lie in one place"),
    ]:
        before, told = w.copy(), jitted.lower(w, g).donations()[0]
        same(jitted(w, g), sgd(before, g))
        assert bits(np.asarray(w), before) is None and (told.honoured, told.reason) == (False, why)
    for _ in range(4):  # native calls look whether arrays overlap, too
        found = jitted(whole[1:], whole[:-1])
        same(found, expected)
        assert bits(whole, array(3)) is None
    assert jitted.lower(whole[1:], whole[:-1]).donations()[0].reason == "it may share memory with g"


def _read_only(x: Array) -> Array:
    x.flags.writeable = False
    return x


def test_native_calls_refuse_what_python_refuses() -> None:
    jitted = tn.jit(written, donate_argnums=0)
    for turn in range(6):
        jitted(array(turn), array(9))
    assert jitted._shortcuts.hits > 0
    whole = np.ones((N + 1, N))
    with pytest.raises(tn.MutationError, match="x may share memory with g"):
        jitted(whole[1:], whole[:-1])
    with pytest.raises(tn.MutationError, match="read-only"):
        jitted(_read_only(array()), array())
    assert (whole == 1).all()


def test_an_undonated_argument_is_not_written() -> None:
    x = array()
    with pytest.raises(tn.MutationError, match="argument g is not the function's own"):
        tn.jit(lambda x, g: g.__iadd__(x), donate_argnums=0)(x, array())


# -- random programs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(50))
def test_random_programs_may_use_up_everything(seed: int) -> None:
    random = np.random.default_rng(1000 + seed)
    program = generate(lambda n: int(random.integers(n)), propose)
    names = tuple(a.name for a in program.arguments)
    tn.default_runtime().clear_caches()
    with poisoned(), np.errstate(all="ignore"):
        plain, donating_all = tn.jit(program.function()), tn.jit(program.function(), donate_argnames=names)
        for sizes in program.sizes:
            expected = plain(*program.inputs(sizes))
            for _ in range(3):
                for a, b in zip(donating_all(*program.inputs(sizes)), expected, strict=True):
                    problem = bits(np.asarray(a), np.asarray(b))
                    assert not problem, f"{problem}\n{program.runnable()}"
    tn.default_runtime().clear_caches()


PLACES = ("x", "x[1:]", "x[:-1]", "x[::2]", "x[:, 1:3]", "x[0]", "x[-1, 1:]", "x[1:-1, ::-1]")
VALUES = ("g", "x", "np.exp(-x)", "y", "x.sum()", "x.max(axis=0)", "np.cumsum(x, axis=1)", "x.T @ g", "g * 2", "y + x")


def random_updates(random: np.random.Generator) -> str:
    """A function of a few statements that write into ``x`` or read it."""
    lines = ["y = g + 1"]
    for _ in range(int(random.integers(1, 6))):
        place, value = PLACES[random.integers(len(PLACES))], VALUES[random.integers(len(VALUES))]
        kind = int(random.integers(4))
        if kind == 0:
            lines.append(f"y = {value} * 0.5")
        elif kind == 1:
            lines.append(f"{place if place != 'x' else 'x[...]'} = {random.integers(1, 9)} / 4")
        else:
            source = value if kind == 2 else place
            lines.append(f"{place} {'+*'[random.integers(2)]}= 0.25 * np.broadcast_to({source}, {place}.shape)")
    result = ("x", "y", "x, y", "x * 2, y", "y.sum()", "None")[random.integers(6)]
    return "def f(x, g):\n    " + "\n    ".join([*lines, f"return {result}"]) + "\n"


@pytest.mark.parametrize("seed", range(120))
def test_random_updates(seed: int) -> None:
    random = np.random.default_rng(seed)
    while True:
        text, scope = random_updates(random), {"np": np}
        exec(text, scope)
        f: Any = scope["f"]
        try:
            f(np.ones((4, 4)), np.ones((4, 4)))
            break
        except ValueError:  # shapes that do not go together
            continue
    tn.default_runtime().clear_caches()
    with poisoned():
        jitted = tn.jit(f, donate_argnums=0)
        for n in (4, 9):
            for turn in range(3):
                x, g = np.random.default_rng(turn).random((2, n, n)) - 0.5
                mine = x.copy()
                expected = f(mine, g.copy())
                found = jitted(x, g)
                for a, b in zip(leaves(found), leaves(expected), strict=True):
                    if b is not None:
                        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12, err_msg=text)
                if "    x" in text:  # written
                    np.testing.assert_allclose(x, mine, rtol=1e-9, atol=1e-12, err_msg=text)
    tn.default_runtime().clear_caches()
