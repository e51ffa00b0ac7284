"""Run by ``mpiexec -n N python -m mpi4py ranks.py``: each rank compares a mesh of ranks with a mesh of engines of its
own process, bit by bit, and prints a line when all are equal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

import tenferro as tn
from tenferro.gradients import grad

P = tn.P
COUNT, RANK = MPI.COMM_WORLD.Get_size(), MPI.COMM_WORLD.Get_rank()
ENGINES = [e.id for e in tn.cpu_engines(COUNT)]


def same(name: str, actual: Any, expected: Any) -> None:
    a, e = np.asarray(actual), np.asarray(expected)
    if (a.dtype, a.shape, a.tobytes()) != (e.dtype, e.shape, e.tobytes()):
        raise AssertionError(f"{name}, rank {RANK}: {a!r}; {e!r} is expected")


def normalised(v: Any) -> Any:
    centred = v - tn.pmean(v.mean(axis=0), "i")
    return centred / np.sqrt(tn.pmean((centred**2).mean(axis=0), "i"))


RING = [(k, (k + 1) % COUNT) for k in range(COUNT)]
CASES: dict[str, tuple[Callable[[Any], Any], tn.PartitionSpec]] = {
    "psum": (lambda v: tn.psum(v, "i"), P()),
    "pmax": (lambda v: tn.pmax(v, "i"), P()),
    "pmin": (lambda v: tn.pmin(v.max(axis=0), "i"), P()),
    "normalised": (normalised, P("i")),
    "gathered": (lambda v: tn.all_gather(v, "i", axis=1), P()),
    "tiled": (lambda v: tn.all_gather(v, "i", axis=1, tiled=True), P()),
    "scattered": (lambda v: tn.psum_scatter(v[:COUNT], "i"), P("i")),
    "shares": (lambda v: tn.psum_scatter(v, "i", scatter_dimension=0, tiled=True), P("i")),
    "permuted": (lambda v: tn.ppermute(v, "i", RING), P("i")),
    "one way": (lambda v: tn.ppermute(v, "i", [(0, COUNT - 1)]), P("i")),
    "root": (lambda v: tn.pbroadcast(v, "i", COUNT - 1), P()),
    "index": (lambda v: v + tn.axis_index("i"), P("i")),
    "numbers": (lambda v: tn.psum(1, "i") * tn.axis_size("i") + 0 * tn.psum(v.sum(), "i"), P()),
    "chain": (lambda v: tn.psum(v * tn.psum(v.sum(), "i"), "i") + tn.pmax(v, "i"), P()),
}


def one_axis() -> None:
    ranks, engines = tn.mpi_mesh("i"), tn.Mesh(ENGINES, "i")
    rng = np.random.default_rng(7)
    for dtype in ("float64", "float32", "float16", "int32", "complex64"):
        x = (100 * rng.normal(size=(COUNT * COUNT * 2, 3))).astype(dtype)
        for name, (f, out) in CASES.items():
            if dtype in ("complex64", "int32") and name in ("pmax", "pmin", "normalised", "chain"):
                continue
            for n in (COUNT * COUNT, len(x)):
                same(name, *(tn.shard_map(f, m, P("i"), out)(x[:n]) for m in (ranks, engines)))
    jitted = [tn.jit(lambda v, m=m: tn.shard_map(normalised, m, P("i"), P("i"))(v * 2) + v) for m in (ranks, engines)]
    x = rng.normal(size=(4 * COUNT, 2))
    same("jitted", *(f(x) for f in jitted))
    for _ in range(50):
        same("again", *(f(x) for f in jitted))


def two_axes() -> None:
    shape = (2, COUNT // 2)
    ranks, engines = tn.mpi_mesh(("i", "j"), shape), tn.Mesh(np.array(ENGINES).reshape(shape), ("i", "j"))
    a, b = np.random.default_rng(1).normal(size=(2, 8, 8))
    product = [
        tn.shard_map(lambda p, q: tn.psum(p @ q, "j"), m, (P("i", "j"), P("j")), P("i")) for m in (ranks, engines)
    ]
    same("product", *(f(a, b) for f in product))
    orders: list[Callable[[Any], Any]] = [
        lambda v: tn.all_gather(v, ("j", "i"), tiled=True),
        lambda v: tn.psum(v, ("i", "j")),
        lambda v: tn.psum(v, ("j", "i")),
        lambda v: tn.pbroadcast(v, ("j", "i"), 1),
    ]
    for f in orders:
        same("orders", *(tn.shard_map(f, m, P(("i", "j")), P())(a) for m in (ranks, engines)))
    f = tn.shard_map(lambda v: tn.psum_scatter(v, ("j", "i")), ranks, P(None, ("i", "j")), P(("j", "i")))
    g = tn.shard_map(lambda v: tn.psum_scatter(v, ("j", "i")), engines, P(None, ("i", "j")), P(("j", "i")))
    same("scattered", f(a[:COUNT]), g(a[:COUNT]))


def own_shards() -> None:
    """Each rank has its own part of the data, of a size of its own; results stay where they are."""
    ranks = tn.mpi_mesh("i", whole=False)
    parts = [np.random.default_rng(k).normal(size=(3 + k, 2)) for k in range(COUNT)]
    both = np.concatenate(parts)

    def centred(v: Any) -> Any:
        mean = tn.psum(v.sum(axis=0), "i") / tn.psum(np.asarray(v.shape[0] * 1.0), "i")
        return v - mean, mean

    out, mean = tn.shard_map(centred, ranks, P("i"), (P("i"), P()))(parts[RANK])
    np.testing.assert_allclose(mean, both.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(out, parts[RANK] - both.mean(axis=0), atol=1e-12)
    try:
        tn.shard_map(lambda v: tn.psum(v, "i"), ranks, P("i"), P())(parts[RANK])
    except ValueError as error:
        assert "one shape in all ranks is needed" in str(error)
    else:
        raise AssertionError("arrays of different shapes were added")


def refused() -> None:
    for call, error, text in (
        (lambda: tn.mpi_mesh("i", (COUNT + 1,)), ValueError, "the ranks as their product"),
        (
            lambda: tn.shard_map(lambda v: v.sum(), tn.mpi_mesh("i"), P("i"), P())(np.ones(COUNT)),
            ValueError,
            "may differ",
        ),
        (
            lambda: tn.shard_map(lambda v: v, tn.mpi_mesh("i"), P("i"), P("i"))(np.ones(COUNT + 1)),
            ValueError,
            "multiple",
        ),
    ):
        try:
            call()
        except error as found:
            assert text in str(found), found
        else:
            raise AssertionError(f"not refused: {text}")


def loss(w: Any, v: Any) -> Any:
    """Every collective that has a derivative."""
    total = tn.psum((w * v**2).sum(axis=0), "i") * tn.pmean(np.sin(v).sum(axis=0), "i") + tn.pmax(v, "i").sum(axis=0)
    moved = tn.ppermute(v, "i", RING) * tn.ppermute(v, "i", [(0, COUNT - 1)]) + tn.pbroadcast(v, "i", COUNT - 1) * w
    parts = tn.all_gather(moved, "i", axis=1, tiled=True).sum() * tn.psum_scatter(v[:COUNT], "i").sum()
    return (total * w).sum() + tn.psum(parts, "i")


def gradients() -> None:
    """Of a function of whole arrays, of one of shards inside, and of ranks' own shards."""
    x, w = np.random.default_rng(3).normal(size=(COUNT * COUNT * 2, 3)), np.array(0.7)
    engines = tn.Mesh(ENGINES, "i")

    def outside(mesh: tn.Mesh) -> Any:
        cut = tn.shard_map(lambda w, v: loss(w, v) * v, mesh, (P(), P("i")), P("i"))
        same_everywhere = tn.shard_map(loss, mesh, (P(), P("i")), P())
        return grad(lambda w, v: (cut(w, v) ** 2).sum() + same_everywhere(w, v), argnums=(0, 1))(w, x)

    def inside(mesh: tn.Mesh) -> Any:
        step = tn.shard_map(grad(loss, argnums=(0, 1)), mesh, (P(), P("i")), (P(), P("i")))
        return step(w, x)

    for where in (outside, inside):
        for actual, expected in zip(where(tn.mpi_mesh("i")), where(engines), strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-10, err_msg=f"rank {RANK}")
    part = slice(RANK * 2 * COUNT, (RANK + 1) * 2 * COUNT)
    own = tn.shard_map(loss, tn.mpi_mesh("i", whole=False), (P(), P("i")), P())
    dw, dx = grad(own, argnums=(0, 1))(w, x[part])
    expected_dw, expected_dx = inside(engines)
    np.testing.assert_allclose(dw, expected_dw, rtol=1e-10)
    np.testing.assert_allclose(dx, expected_dx[part], rtol=1e-10, atol=1e-10)


if __name__ == "__main__":
    one_axis()
    two_axes()
    own_shards()
    gradients()
    refused()
    sys.stdout.write(f"rank {RANK} of {COUNT}: equal\n")  # in one piece: the ranks share the terminal
