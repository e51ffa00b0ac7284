"""``vmap`` and loops inside of ``shard_map``: lanes of all engines meet, turns of a loop do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer.errors import TraceError
from tests.sharding.meshes import mesh, rows

P = tn.P
X = rows(4, 3, seed=1)
SHARDS = X.reshape(2, 2, 3)
INDEX = np.array([0.0, 1.0])


def whole(f: Callable[[Any], Any]) -> Any:
    """The lanes' results on all engines, one engine behind the other."""
    return tn.shard_map(lambda x: tn.vmap(f)(x), mesh(2), P("i"), P("i"))(X)


def test_lanes_meet() -> None:
    total = SHARDS.sum(axis=(0, 2))  # of each lane, over the engines
    np.testing.assert_allclose(whole(lambda r: tn.psum(r.sum(), "i") * r), (SHARDS * total[:, None]).reshape(4, 3))


def test_engines_are_told_apart_in_lanes() -> None:
    expected = (SHARDS + INDEX[:, None, None]).reshape(4, 3)
    np.testing.assert_allclose(whole(lambda r: r + tn.axis_index("i")), expected)


def test_every_collective_in_lanes() -> None:
    gathered = np.concatenate([SHARDS[0], SHARDS[1]], axis=1)
    np.testing.assert_allclose(whole(lambda r: tn.all_gather(r, "i", tiled=True)), np.tile(gathered, (2, 1)))
    np.testing.assert_allclose(whole(lambda r: tn.ppermute(r, "i", [(0, 1), (1, 0)])), SHARDS[::-1].reshape(4, 3))
    np.testing.assert_allclose(whole(lambda r: tn.pbroadcast(r, "i", 1)), np.tile(SHARDS[1], (2, 1)))
    np.testing.assert_allclose(whole(lambda r: tn.pmax(r, "i")), np.tile(SHARDS.max(axis=0), (2, 1)))
    parts = SHARDS[:, :, :2].sum(axis=0)
    scattered = whole(lambda r: tn.psum_scatter(r[:2], "i"))
    np.testing.assert_allclose(scattered, np.concatenate([parts[:, 0], parts[:, 1]]))


def test_values_from_around_are_each_engines_own() -> None:
    found = tn.shard_map(lambda x: tn.vmap(lambda r: r * x[0, 0])(x), mesh(2), P("i"), P("i"))(X)
    np.testing.assert_allclose(found, (SHARDS * SHARDS[:, :1, :1]).reshape(4, 3))


def test_gradients_in_lanes_and_lanes_in_gradients() -> None:
    def loss(r: Any) -> Any:
        return tn.psum((r**3).sum(), "i")

    np.testing.assert_allclose(whole(tn.grad(loss)), 3 * X**2)
    total = tn.grad(lambda x: tn.psum(tn.vmap(lambda r: (r**3).sum())(x).sum(), "i"))
    np.testing.assert_allclose(tn.shard_map(total, mesh(2), P("i"), P("i"))(X), 3 * X**2)


def test_lanes_of_sharded_functions() -> None:
    sharded = tn.shard_map(lambda v: tn.psum(v.sum(), "i") * v, mesh(2), P("i"), P("i"))
    scales = np.array([1.0, -2.0, 0.5])
    found = tn.vmap(lambda s: sharded(X[:, 0] * s))(scales)
    np.testing.assert_allclose(found, scales[:, None] ** 2 * X[:, 0].sum() * X[:, 0])


def test_loops_on_each_engine() -> None:
    def total(x: Any) -> Any:
        return tn.lax.scan(lambda c, r: (c + r.sum() * x[0, 0], None), 0.0, x)[0][None]

    expected = SHARDS.sum(axis=(1, 2)) * SHARDS[:, 0, 0]
    np.testing.assert_allclose(tn.shard_map(total, mesh(2), P("i"), P("i"))(X), expected)


MEETING: dict[str, Callable[[Any], Any]] = {
    "scan": lambda x: tn.lax.scan(lambda c, r: (c + tn.psum(r.sum(), "i"), None), 0.0, x)[0],
    "cond": lambda x: tn.lax.cond(x[0, 0] > 0, lambda x: tn.psum(x.sum(), "i"), lambda x: x.sum(), x),
    "while_loop": lambda x: tn.lax.while_loop(lambda c: c < 3, lambda c: c + tn.axis_index("i") + 1.0, x[0, 0]),
}


@pytest.mark.parametrize("name", MEETING)
def test_engines_do_not_meet_in_turns(name: str) -> None:
    with pytest.raises(TraceError, match=f"^{name}: .*a collective or axis_index outside of it is needed.*test_mapped"):
        tn.shard_map(lambda x: MEETING[name](x)[None], mesh(2), P("i"), P("i"))(X)
