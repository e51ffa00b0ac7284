"""Each collective against NumPy: bits, dtypes, axes, groups of a mesh of two axes, Python numbers, pytrees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tests.sharding.meshes import mesh, rows
from tests.table.agreement import bits
from tests.values import corners, of_kinds

Array = np.ndarray[Any, Any]
P = tn.P
X = rows(8, 6)


def halves(x: Array) -> tuple[Array, Array]:
    return x[: len(x) // 2], x[len(x) // 2 :]


def on_two(function: Any, out: tn.PartitionSpec, x: Array = X, spec: tn.PartitionSpec = P("i")) -> Any:  # noqa: B008
    return tn.shard_map(function, mesh(2), spec, out)(x)


@pytest.mark.parametrize("dtype", of_kinds("iufc"))
def test_psum(dtype: str) -> None:
    x = np.concatenate([corners(np.dtype(dtype)), corners(np.dtype(dtype))[::-1]])
    a, b = halves(x)
    with np.errstate(all="ignore"):
        expected = (a.astype(np.float32) + b).astype(dtype) if dtype == "float16" else a + b
        assert bits(on_two(lambda v: tn.psum(v, "i"), P(), x), expected) is None


@pytest.mark.parametrize("dtype", of_kinds("biuf"))
@pytest.mark.parametrize("name", ["pmax", "pmin"])
def test_extremes(name: str, dtype: str) -> None:
    """−0 < +0, and NaN wins from either side, as in the fused maximum."""
    c = corners(np.dtype(dtype))
    a, b = (m.ravel() for m in np.meshgrid(c, c))
    function = {"pmax": (tn.pmax, np.maximum), "pmin": (tn.pmin, np.minimum)}[name]
    found = on_two(lambda v: function[0](v, "i"), P(), np.concatenate([a, b]))
    assert bits(found, tn.jit(lambda p, q: function[1](p, q))(a, b)) is None


def test_order_of_sums_is_that_of_the_mesh() -> None:
    """1e16 + 1 − 1e16 − 1 tells every order of addition from another."""
    x = np.array([1e16, 1.0, -1e16, 1.0])
    total = tn.shard_map(lambda v: tn.psum(v, "i"), mesh(4), P("i"), P())(x)
    assert total.tolist() == [((1e16 + 1.0) - 1e16) + 1.0]
    both = tn.shard_map(lambda v: tn.psum(v, ("j", "i")), mesh(2, 2), P(("i", "j")), P())(x)
    assert both.tolist() == [((1e16 - 1e16) + 1.0) + 1.0]


def test_pmean_divides_as_numpy_does() -> None:
    for dtype, result in (("int32", "float64"), ("float32", "float32"), ("float16", "float16"), ("complex64",) * 2):
        x = np.arange(4).astype(dtype)
        mean = on_two(lambda v: tn.pmean(v, "i"), P(), x)
        assert mean.dtype == result and mean.tolist() == [1, 2]


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_all_gather(axis: int) -> None:
    a, b = halves(X)
    tiled = on_two(lambda v: tn.all_gather(v, "i", axis=axis, tiled=True), P())
    assert np.array_equal(tiled, np.concatenate([a, b], axis))
    stacked = on_two(lambda v: tn.all_gather(v, "i", axis=axis), P())
    assert np.array_equal(stacked, np.stack([a, b], axis))


def test_gathered_scalars() -> None:
    found = on_two(lambda v: tn.all_gather(v.sum(), "i"), P())
    np.testing.assert_allclose(found, [h.sum() for h in halves(X)])
    assert on_two(lambda v: tn.all_gather(tn.axis_index("i"), "i"), P()).tolist() == [0, 1]
    assert on_two(lambda v: tn.all_gather(7, "i"), P()).tolist() == [7, 7]


@pytest.mark.parametrize("axis", [0, 1])
def test_psum_scatter(axis: int) -> None:
    a, b = halves(X)
    spec = P("i") if axis == 0 else P(None, "i")
    tiled = on_two(lambda v: tn.psum_scatter(v, "i", scatter_dimension=axis, tiled=True), spec)
    assert np.array_equal(tiled, a + b)
    pairs = np.arange(8.0).reshape(4, 2)
    found = on_two(lambda v: tn.psum_scatter(v, "i"), P("i"), pairs)
    assert np.array_equal(found, (pairs[:2] + pairs[2:]).ravel())


def test_all_to_all() -> None:
    """Rows on each engine become columns on each, and back; element k of engine j goes to place j of engine k."""
    columns = on_two(lambda v: tn.all_to_all(v, "i", 1, 0, tiled=True), P(None, "i"))
    np.testing.assert_array_equal(columns, X)
    back = on_two(
        lambda v: tn.all_to_all(tn.all_to_all(v, "i", 1, 0, tiled=True), "i", 0, 1, tiled=True), P("i")
    )  # fmt: skip
    np.testing.assert_array_equal(back, X)
    pairs = X.reshape(4, 2, 6)  # an element for each engine along axis 1
    swapped = on_two(lambda v: tn.pswapaxes(v, "i", 1), P("i"), pairs)
    np.testing.assert_array_equal(swapped.reshape(2, 2, 2, 6), pairs.reshape(2, 2, 2, 6).transpose(2, 1, 0, 3))
    np.testing.assert_array_equal(on_two(lambda v: tn.pshuffle(v, "i", [1, 0]), P("i")), np.roll(X, 4, axis=0))
    slope = tn.grad(lambda x: (on_two(lambda v: tn.all_to_all(v, "i", 1, 0, tiled=True), P(None, "i"), x) * X).sum())(X)
    np.testing.assert_array_equal(slope, X)
    with pytest.raises(tn.ShapeError, match="all_to_all: axis 1 of size .* over 2 engines; just that is needed"):
        on_two(lambda v: tn.all_to_all(v, "i", 1, 0), P("i"))


def test_ppermute() -> None:
    x = np.arange(8.0)
    where = mesh(4)
    ring = tn.shard_map(lambda v: tn.ppermute(v, "i", [(k, (k + 1) % 4) for k in range(4)]), where, P("i"), P("i"))
    assert np.array_equal(ring(x), np.roll(x, 2))
    some = tn.shard_map(lambda v: tn.ppermute(v, "i", [(3, 0), (1, 1)]), where, P("i"), P("i"))
    assert some(x).tolist() == [6, 7, 2, 3, 0, 0, 0, 0]
    none = tn.shard_map(lambda v: tn.ppermute(v, "i", []), where, P("i"), P("i"))
    assert none(x).tolist() == [0] * 8


def test_pbroadcast() -> None:
    _, b = halves(X)
    assert np.array_equal(on_two(lambda v: tn.pbroadcast(v, "i", 1), P()), b)


def test_groups_of_a_mesh_of_two_axes() -> None:
    x = np.arange(4.0)
    where, both = mesh(2, 2), ("i", "j")
    cases: list[tuple[Any, list[float]]] = [
        (lambda v: tn.psum(v, "i"), [2, 4, 2, 4]),
        (lambda v: tn.psum(v, "j"), [1, 1, 5, 5]),
        (lambda v: tn.psum(v, both), [6, 6, 6, 6]),
        (lambda v: tn.psum(tn.psum(v, "i"), "j"), [6, 6, 6, 6]),
        (lambda v: tn.all_gather(v, "j").sum() * 1.0 + v * 0, [1, 1, 5, 5]),
        (lambda v: tn.all_gather(v[0], ("j", "i"))[1] + v * 0, [2, 2, 2, 2]),
        (lambda v: tn.ppermute(v, "j", [(0, 1)]), [0, 0, 0, 2]),
        (lambda v: tn.pbroadcast(v, "i", 1), [2, 3, 2, 3]),
        (lambda v: v * 0 + tn.axis_index(both), [0, 1, 2, 3]),
        (lambda v: v * 0 + tn.axis_index(("j", "i")), [0, 2, 1, 3]),
        (lambda v: v * 0 + tn.axis_size("i") * tn.axis_size(both), [8, 8, 8, 8]),
    ]
    for function, expected in cases:
        assert tn.shard_map(function, where, P(both), P(both))(x).tolist() == expected


def test_numbers_of_python() -> None:
    def f(v: Any) -> Any:
        return (
            tn.psum(1, "i"), tn.psum(2.5, "i"), tn.pmean(3, "i"), tn.pmax(4, "i"), tn.psum(v.shape[0], "i"),
            tn.pbroadcast(5, "i", 1), tn.axis_size("i"),
        )  # fmt: skip

    assert on_two(f, P()) == (2, 5.0, 3.0, 4, 8, 5, 2)


def test_indices_are_numbers_that_give_way() -> None:
    x = np.ones(4, np.float32)
    out = on_two(lambda v: v * tn.axis_index("i"), P("i"), x)
    assert out.dtype == np.float32 and out.tolist() == [0, 0, 1, 1]
    assert on_two(lambda v: tn.psum(tn.axis_index("i"), "i"), P()) == 1
    chosen = on_two(lambda v: np.where(tn.axis_index("i") == 0, v, -v), P("i"), x)
    assert chosen.tolist() == [1, 1, -1, -1]


def test_numbers_made_at_the_trace_meet_too() -> None:
    """Operands that passes turn into constants."""
    assert on_two(lambda v: tn.psum(np.float64(3) + 0 * tn.axis_index("i"), "i"), P()) == 6
    assert on_two(lambda v: tn.psum(np.ones(2), "i"), P()).tolist() == [2, 2]
    assert on_two(lambda v: tn.psum(v.shape[0] / 2, "i"), P()) == 4


def test_pytrees() -> None:
    found = on_two(lambda v: tn.psum({"a": v.sum(), "b": (v[0, 0], 1)}, "i"), P())
    a, b = halves(X)
    np.testing.assert_allclose(found["a"], X.sum())
    assert found["b"] == (a[0, 0] + b[0, 0], 2)


def test_results_of_ring_sum_equal_psum() -> None:
    """A sum by hand, around the ring."""
    where = mesh(4)

    def ring(v: Any) -> Any:
        total, passed = v, v
        for _ in range(3):
            passed = tn.ppermute(passed, "i", [(k, (k + 1) % 4) for k in range(4)])
            total = total + passed
        return total

    x = np.arange(16.0)
    by_hand = tn.shard_map(ring, where, P("i"), P("i"))(x)
    assert np.array_equal(by_hand, np.tile(tn.shard_map(lambda v: tn.psum(v, "i"), where, P("i"), P())(x), 4))
