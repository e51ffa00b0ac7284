"""``einsum`` and the products beside it against NumPy: every form of subscripts, dtypes, sizes of 0 and 1, errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.lowering.plan import Seam
from tests.turns import is_due

pytestmark = pytest.mark.filterwarnings("ignore::tenferro.tracer.errors.RecompileWarning")
SIZES = {"a": 3, "b": 2, "c": 4, "d": 3, "e": 2, "f": 3, "h": 2, "i": 3, "j": 4, "k": 5, "l": 2, "q": 4}
TEXTS = (
    "ij,jk", "ij,jk->ik", "ij , jk -> ki", "ij->ji", "ii->i", "ii", "ij->", "ij->j", "ba", "i,i", "i,j", "i,j->ji",
    "ij,ij->ij", "ij,ij->i", "ij,ij", "bij,bjk->bik", "bij,bkj->bik", "bhqd,bhkd->bhqk", "bhqk,bhkd->bhqd",
    "ijk,jkl->il", "ijk,kjl->il", "kji,jlk->li", "ij,jk,kl->il", "ij,kl,jk->il", "a,ab,abc->abc", "i...,j...->ij...",
    "...ij,...jk->...ik", "ij,j,k->ik", "ij,kl->ijkl", "ijj->i", "iij,jk->ik", "ijk,ijk->", "ij,jk,ki", "i,ij,j->",
    "ij,i->ij", "abc,cd,def->abef", "ij...,jk...->ik...", "ab,b->a", "ab,ab,ab->ab", "...->...", "...i->...",
    "...,...", "i,i,i->i", "a,b,c,d->dbca", "ijk,k->ij", "ij,->ij", "aab,bbc->ac", "ij,ji,ij->i",
)  # fmt: skip
rng = np.random.default_rng(0)


def array(text: str, dtype: str, shorter: bool = False, empty: str = "") -> np.ndarray:
    """For one operand's subscripts; ``shorter``: some axes have size 1; those in ``empty`` have none."""
    shape = []
    for letter in text.replace(" ", "").replace("...", "*"):
        if letter == "*":
            shape += [2, 3][int(shorter) :]
        else:
            shape.append(0 if letter in empty else 1 if shorter and rng.random() < 0.3 else SIZES[letter])
    x = rng.integers(-4, 5, shape)
    if dtype == "?":
        return x > 0
    return (x + 1j * rng.integers(-3, 4, shape)).astype(dtype) if dtype in "FD" else x.astype(dtype)


def agree(function: Callable[..., Any], *arrays: np.ndarray) -> None:
    """Jitted and eager, in values, shape, dtype, or kind of error."""

    def eager(*xs: np.ndarray) -> Any:
        return function(*(tn.asarray(x) for x in xs))

    try:
        wanted = function(*arrays)
    except ValueError:
        for run in (tn.jit(function), eager):
            with pytest.raises(ValueError, match="einsum"):
                run(*arrays)
        return
    for run in (tn.jit(function), eager):
        found = np.asarray(run(*arrays))
        assert found.dtype == np.asarray(wanted).dtype and found.shape == np.shape(wanted)
        np.testing.assert_allclose(found, wanted, rtol=1e-3 if found.dtype == np.float16 else 1e-5)


@pytest.mark.parametrize("text", TEXTS)
def test_subscripts(text):
    """Each dtype with all axes long or with some of size 1, in turns."""
    inputs = text.split("->")[0].split(",")
    for number, dtype in enumerate(("f8", "f2", "D", "i1", "?")):
        for shorter in (False, True):
            if is_due(TEXTS.index(text), number, shorter):
                agree(lambda *xs: np.einsum(text, *xs), *(array(x, dtype, shorter) for x in inputs))
    for empty in "ijk":
        agree(lambda *xs: np.einsum(text, *xs), *(array(x, "f4", empty=empty) for x in inputs))


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b, c: np.einsum(a, [0, 1], b, [1, 2]),
        lambda a, b, c: np.einsum(a, [0, 1], b, [1, 2], [2, 0]),
        lambda a, b, c: np.einsum(a, [5, 1], b, [1, 2]),
        lambda a, b, c: np.einsum(a, [Ellipsis, 1], b, [1, 2], [Ellipsis, 2]),
        lambda a, b, c: np.einsum(a, [1, 0]),
        lambda a, b, c: np.einsum("ij,jk,kl", a, b, c, optimize=True),
        lambda a, b, c: np.einsum("ij,jk,kl", a, b, c, optimize="optimal"),
        lambda a, b, c: np.einsum("ij,jk,kl", a, b, c, optimize=["einsum_path", (1, 2), (0, 1)]),
        lambda a, b, c: np.einsum("ij,jk,kl", a, b, c, optimize=["einsum_path", (0, 1, 2)]),
        lambda a, b, c: np.einsum(",ij", 3, a.astype("f4")),
        lambda a, b, c: np.einsum("ij,jk", a.astype("f4"), b.astype("f4"), dtype="f8"),
        lambda a, b, c: np.einsum("ij,jk", a, b, dtype="f4", casting="unsafe"),
        lambda a, b, c: np.einsum("ij,jk", a, b.astype("i4"), order="C"),
        lambda a, b, c: np.kron(a, b),
        lambda a, b, c: np.kron(a, b[0]),
        lambda a, b, c: np.kron(a[0], b[None] > 0),
        lambda a, b, c: np.kron(2, a),
        lambda a, b, c: np.matvec(a, b[:, 0]),
        lambda a, b, c: np.matvec(np.stack([a, a]), np.stack([b[:, 0]] * 3)[:, None]),
        lambda a, b, c: np.vecmat(a[0], b),
        lambda a, b, c: np.vecmat(a * 1j, b + 2j),
        lambda a, b, c: np.vecdot(a * 1j, a + 2),
        lambda a, b, c: np.tensordot(a, b, ((1,), (0,))),
        lambda a, b, c: np.tensordot(np.stack([a, a]), np.stack([a, a], 2), ((2, 0), (1, 2))),
        lambda a, b, c: np.tensordot(a, c, 0),
        lambda a, b, c: np.inner(a, a[:2]),
        lambda a, b, c: np.vdot(a * 1j, a),
        lambda a, b, c: np.outer(a, c),
    ],
)  # fmt: skip
def test_forms(function):
    shapes = ((3, 4), (4, 5), (5, 2))
    given = [rng.standard_normal(s) for s in shapes]
    found, wanted = tn.jit(function)(*given), function(*given)
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    eager = np.asarray(function(*(tn.asarray(x) for x in given)))
    assert eager.tobytes() == np.asarray(found).tobytes()


def test_one_program_serves_every_size():
    f = tn.jit(lambda a, b, c: (np.einsum("ij,jk,kl->il", a, b, c), np.einsum("bij,bkj->bik", a[None], a[None])))
    g = tn.jit(lambda a, b: np.kron(a, b))
    for i, j, k in ((2, 3, 4), (5, 6, 7), (9, 2, 3)):
        a, b, c = (rng.standard_normal(s) for s in ((i, j), (j, k), (k, i)))
        np.testing.assert_allclose(f(a, b, c)[0], a @ b @ c, atol=1e-12)
        np.testing.assert_allclose(g(a, b), np.kron(a, b))
    assert f.cache_info().compiles == g.cache_info().compiles == 1


def test_the_order_of_operands_shares_subscripts():
    """``ij,kl,jk`` multiplies no pair without a common subscript: the largest array is a matrix."""
    a, b, c = (rng.standard_normal((30, 30)) for _ in range(3))
    lowered = tn.jit(lambda a, b, c: np.einsum("ij,kl,jk->il", a, b, c)).lower(a, b, c)
    assert int(lowered.memory().peak) <= 3 * 30 * 30 * 8
    np.testing.assert_allclose(tn.jit(lambda *x: np.einsum("ij,kl,jk->il", *x))(a, b, c), a @ c @ b, atol=1e-10)


def test_contractions_need_no_numpy():
    """No seam: axes that are brought together, float16, complex numbers."""
    x, y = rng.standard_normal((3, 4, 5)), rng.standard_normal((5, 4, 2))
    functions = (
        lambda x, y: np.einsum("ijk,kjl->il", x, y),
        lambda x, y: np.tensordot(x, y, ((2, 1), (0, 1))),
        lambda x, y: np.einsum("ijk,kjl->il", x.astype("f2"), y.astype("f2")),
        lambda x, y: np.einsum("ijk,kjl->il", x * 1j, y),
        lambda x, y: np.kron(x[0], y[0]),
        lambda x, y: np.matvec(x, y[:, 0, 0]),
    )
    for f in functions:
        stretches = [s for found in tn.jit(f).lower(x, y).stretches.values() for s in found]
        assert not any(isinstance(s, Seam) for s in stretches)


def test_float16_is_rounded_once():
    h = np.full(4096, 1 + 2**-10, np.float16)
    exact = np.sum(h.astype("f8") ** 2)
    for f in (np.dot, np.inner, np.vdot, np.vecdot, lambda a, b: np.einsum("i,i", a, b)):
        assert tn.jit(f)(h, h) == np.float16(exact), f
    x = (rng.standard_normal((3, 40, 50)) / 4).astype("f2")
    found = tn.jit(lambda x: np.einsum("aij,akj,ai->k", x, x, x[:, :, 0]))(x)
    wide = x.astype("f8")
    np.testing.assert_allclose(
        found, np.einsum("aij,akj,ai->k", wide, wide, wide[:, :, 0]).astype("f2"), rtol=1e-3, atol=0.02
    )


def test_a_transpose_is_a_view():
    def f(x):
        y = np.zeros(x.shape)
        z = np.einsum("ij->ji", y)
        z[:] = x.T
        return y

    x = rng.standard_normal((3, 4))
    np.testing.assert_array_equal(tn.jit(f)(x), f(x))
    with pytest.raises(ValueError, match="read-only"):
        tn.jit(lambda x: np.einsum("ii->i", np.zeros(x.shape)).__setitem__(slice(None), 1))(np.ones((3, 3)))


def test_out():
    def f(a, b):
        out = np.zeros((3, 5))
        assert np.einsum("ij,jk->ik", a, b, out=out) is out
        return out * 2

    a, b = rng.standard_normal((3, 4)), rng.standard_normal((4, 5))
    np.testing.assert_allclose(tn.jit(f)(a, b), f(a, b))


@pytest.mark.parametrize(
    ("function", "kind", "said"),
    [
        (lambda x: np.einsum("...i->i", x), ValueError, "1 axes that broadcast; an ellipsis is needed"),
        (lambda x: np.einsum("ij->ii", x), ValueError, "'ii' of the result; each is needed once"),
        (lambda x: np.einsum("ij->ik", x), ValueError, "'ik' of the result; .* in an array"),
        (lambda x: np.einsum("i", x), ValueError, "'i' for rank 2; one for each axis"),
        (lambda x: np.einsum("ijk", x), ValueError, "'ijk' for rank 2"),
        (lambda x: np.einsum("i.j", x), ValueError, r"'\.' among the subscripts"),
        (lambda x: np.einsum("i1", x), ValueError, "'1' among the subscripts"),
        (lambda x: np.einsum("ij,jk", x), ValueError, "1 arrays for 2 lists of subscripts"),
        (lambda x: np.einsum("ij,jk", x, x), ValueError, "subscript 'j' has sizes 3 and 2"),
        (lambda x: np.einsum("...,...", x, x[:, :2]), ValueError, "an axis of the ellipsis has sizes 3 and 2"),
        (lambda x: np.einsum("ii", x), ValueError, r"subscript 'i' twice in an array of shape \(2, 3\)"),
        (lambda x: np.einsum("ij,ij", x, x, dtype="f4"), TypeError, "einsum: result of dtype float64"),
        (lambda x: np.einsum(x, [0, 70]), ValueError, "ints from 0 to 51"),
        (lambda x: np.einsum("ij,ij,ij", x, x, x, optimize=["einsum_path", (0, 3)]), ValueError, "path"),
        (lambda x: np.einsum("ij,ij,ij", x, x, x, optimize="wildly"), ValueError, "optimize 'wildly'"),
        (lambda x: np.einsum("ij", x, order="Z"), ValueError, "order 'Z'"),
        (lambda x: np.matvec(x[0], x), ValueError, re.escape("operands of ranks (1, 2)")),
        (lambda x: np.vecmat(x, x[0]), ValueError, re.escape("operands of ranks (2, 1)")),
    ],
)  # fmt: skip
def test_errors(function, kind, said):
    with pytest.raises(kind, match=said):
        tn.jit(function)(np.ones((2, 3)))
