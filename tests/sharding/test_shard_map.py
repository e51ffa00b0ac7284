"""``shard_map``: functions of shards on one and several engines, against NumPy on the whole arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.runtime import CollectiveNode, OperationNode, TransferNode
from tests.sharding.meshes import engines, mesh, rows
from tests.table.agreement import bits

Array = np.ndarray[Any, Any]
P = tn.P
MESHES = [(1,), (2,), (4,), (1, 2), (2, 1), (2, 2)]


def normalised(x: Array) -> Array:
    return (x - x.mean(axis=0)) / np.sqrt(((x - x.mean(axis=0)) ** 2).mean(axis=0))


def normalised_shards(x: Any, axes: Any) -> Any:
    centred = x - tn.pmean(x.mean(axis=0), axes)
    return centred / np.sqrt(tn.pmean((centred**2).mean(axis=0), axes))


@pytest.mark.parametrize("sizes", MESHES)
@pytest.mark.parametrize("n", [4, 4096])
def test_two_collectives_in_turn(sizes: tuple[int, ...], n: int) -> None:
    where = mesh(*sizes)
    axes = where.axis_names
    x = rows(n, 3)
    f = tn.shard_map(lambda v: normalised_shards(v, axes), where, P(axes), P(axes))
    np.testing.assert_allclose(f(x), normalised(x), rtol=1e-10)
    assert f(x).shape == x.shape


@pytest.mark.parametrize("sizes", MESHES)
def test_elementwise_work_has_the_bits_of_one_engine(sizes: tuple[int, ...]) -> None:
    where = mesh(*sizes)
    x, y = rows(8, 12), rows(8, 12, seed=1)

    def f(a: Any, b: Any) -> Any:
        return np.exp(a) * b - np.sqrt(np.abs(a))

    for spec in (P("i"), P(None, "i"), P(where.axis_names), P()):
        assert bits(tn.shard_map(f, where, spec, spec)(x, y), tn.jit(f)(x, y)) is None


@pytest.mark.parametrize("sizes", [(1, 2), (2, 1), (2, 2)])
def test_matrix_product_over_two_axes(sizes: tuple[int, ...]) -> None:
    """Rows along i, the inner axis along j: every engine multiplies blocks, the sums meet along j."""
    a, b = rows(8, 4), rows(4, 6, seed=1)
    f = tn.shard_map(lambda p, q: tn.psum(p @ q, "j"), mesh(*sizes), (P("i", "j"), P("j")), P("i"))
    np.testing.assert_allclose(f(a, b), a @ b, rtol=1e-12, atol=1e-12)


def test_both_axes_of_an_array() -> None:
    x = np.arange(24.0).reshape(4, 6)
    where = mesh(2, 2)
    f = tn.shard_map(lambda v: v + 10 * tn.axis_index("i") + 100 * tn.axis_index("j"), where, P("i", "j"), P("i", "j"))
    expected = x.copy()
    expected[2:] += 10
    expected[:, 3:] += 100
    assert np.array_equal(f(x), expected)
    swapped = tn.shard_map(lambda v: v + 100 * tn.axis_index(("j", "i")), where, P(("j", "i")), P(("j", "i")))
    assert np.array_equal(swapped(x), x + 100 * np.arange(4)[:, None])


def test_a_result_may_be_cut_otherwise_than_the_argument() -> None:
    x = rows(4, 6)
    f = tn.shard_map(lambda v: v.T * 2, mesh(2), P("i"), P(None, "i"))
    assert np.array_equal(f(x), x.T * 2)


def test_pytrees_and_what_is_no_array() -> None:
    @dataclass
    class Model:
        w: Any
        b: Any

    def f(model: Model, batch: dict[str, Any], scale: Any, name: str) -> Any:
        out = batch["x"] @ model.w + model.b
        return {"loss": tn.psum((out * scale).sum(), "i"), "out": out}, name, batch["x"].shape[0]

    x, w, b = rows(6, 3), rows(3, 2, seed=1), rows(2, seed=2)
    specs = (P(), {"x": P("i"), "y": P("i")}, P(), P())
    g = tn.shard_map(f, mesh(2), specs, ({"loss": P(), "out": P("i")}, P(), P()))
    result, name, count = g(Model(w, b), {"y": x, "x": x}, 2.0, "linear")
    np.testing.assert_allclose(result["out"], x @ w + b, rtol=1e-12)
    np.testing.assert_allclose(result["loss"], 2 * (x @ w + b).sum(), rtol=1e-12)
    assert (name, count) == ("linear", 3)


def test_captured_arrays_and_numbers_are_read_at_each_call() -> None:
    weights, factor = np.ones(3), 2.0

    def f(v: Any) -> Any:
        return v * weights * factor

    g = tn.shard_map(f, mesh(2), P("i"), P("i"))
    x = np.arange(12.0).reshape(4, 3)
    assert np.array_equal(g(x), x * 2)
    weights[:] = 5
    assert np.array_equal(g(x), x * 10)
    factor = 3.0
    assert np.array_equal(g(x), x * 15)


def test_inside_jit_and_jit_inside() -> None:
    @tn.jit
    def square(v: Any) -> Any:
        return v * v

    inner = tn.shard_map(lambda v: square(v) - tn.pmax(v.max(), "i"), mesh(2), P("i"), P("i"))

    @tn.jit
    def outer(x: Any) -> Any:
        y = x + 1
        return inner(y) + y, inner(2 * y)

    x = rows(6, 2)
    first, second = outer(x)
    y = x + 1
    np.testing.assert_allclose(first, y * y - y.max() + y)
    np.testing.assert_allclose(second, 4 * y * y - 2 * y.max())
    nested = tn.shard_map(square, mesh(2), P("i"), P("i"))
    assert np.array_equal(nested(x), x * x)
    assert np.array_equal(tn.jit(nested)(x), x * x)


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 0), (4, 4)])
def test_empty_arrays(shape: tuple[int, int]) -> None:
    f = tn.shard_map(lambda v: (np.exp(v), tn.psum(v, ("i", "j"))), mesh(2, 2), P("i", "j"), (P("i", "j"), P()))
    out, total = f(np.ones(shape))
    assert bits(out, tn.jit(lambda v: np.exp(v))(np.ones(shape))) is None
    assert bits(total, np.full((shape[0] // 2, shape[1] // 2), 4.0)) is None


def test_results_with_a_size_that_was_cut_have_that_size() -> None:
    """No guard is needed to add them to the argument."""
    f = tn.shard_map(lambda v: np.exp(v), mesh(2), P("i"), P("i"))
    program = tn.jit(lambda x: f(x) + x).trace(rows(4, 3))
    assert [str(g) for g in program.guards] == ["d0_0 % 2 == 0"]


def test_one_program_for_every_size() -> None:
    f = tn.shard_map(lambda v: v - tn.pmean(v.mean(), "i"), mesh(2), P("i"), P("i"))
    for n in (2, 4, 10, 64, 1000):
        x = rows(n)
        np.testing.assert_allclose(f(x), x - x.mean(), atol=1e-12)
    assert f.cache_info().compiles == 1


def test_sizes_of_shards_are_sizes() -> None:
    def f(v: Any) -> Any:
        out = np.zeros(v.shape)
        out[1:] = v[:-1]
        return out / v.shape[0]

    x = np.arange(8.0)
    expected = np.array([0, 0, 1, 2, 0, 4, 5, 6]) / 4
    assert np.array_equal(tn.shard_map(f, mesh(2), P("i"), P("i"))(x), expected)


def test_sizes_known_when_it_has_run() -> None:
    """Each engine selects another number of elements."""

    def f(v: Any) -> Any:
        picked = v[v > 0]
        return picked * picked.shape[0], tn.psum(picked.sum(), "i")

    x = np.array([1.0, -1, 2, 3, -4, -5, 6, -7])
    picked, total = tn.shard_map(f, mesh(2), P("i"), (P("i"), P()))(x)
    assert picked.tolist() == [3.0, 6.0, 9.0, 6.0]
    assert total == 12


def test_masks_that_are_alike_on_the_first_engine_only() -> None:
    """Both arguments are the same shard on engine (0, 0) and different ones elsewhere."""
    x = np.array([1.0, -1, 2, 3])

    def f(a: Any, b: Any) -> Any:
        return tn.psum(a[a > 0].sum(), ("i", "j")), tn.psum(b[b > 0].sum(), ("i", "j"))

    first, second = tn.shard_map(f, mesh(2, 2), (P("i"), P("j")), P())(x, x)
    assert first == second == 12


def test_types_of_results() -> None:
    f = tn.shard_map(
        lambda v: (v, v.sum() * 0 + tn.psum(v.sum(), "i")), mesh(2), P("i"), (P("i"), P()), check_vma=False
    )
    x = np.arange(4, dtype=np.float32)
    out, total = f(x)
    assert type(out) is np.ndarray and out.dtype == np.float32 and out.flags.writeable
    assert type(total) is np.float32
    out, total = f(tn.asarray(x))
    assert type(out) is tn.Array and type(total) is tn.Array
    y = f(x)[0]
    y[:] = 0
    assert x.tolist() == [0, 1, 2, 3]


def test_results_are_arrays_of_their_own() -> None:
    def f(v: Any) -> Any:
        total = tn.psum(v, "i")
        return total, total, v

    x = np.arange(4.0)
    first, second, shards = tn.shard_map(f, mesh(2), P("i"), (P(), P("i"), P("i")))(x)
    assert not np.may_share_memory(first, second) and not np.may_share_memory(shards, x)
    first[:] = -1
    assert second.tolist() == [2.0, 4.0, 2.0, 4.0] and shards.tolist() == x.tolist()


def test_the_schedule_shows_parts_transfers_and_collectives() -> None:
    f = tn.shard_map(lambda v: v - tn.pmean(v.mean(), "i"), mesh(2), P("i"), P("i"))
    lowered = f.lower(rows(6))
    nodes = lowered.schedule.nodes
    collectives = [n for n in nodes if isinstance(n, CollectiveNode)]
    assert [n.instruction.op.name for n in collectives] == ["all_reduce"]
    assert collectives[0].places == (0, 1)
    for engine in (0, 1):
        before = [k for k in collectives[0].dependencies if nodes[k].engine == engine]
        assert len(before) == 1 and isinstance(nodes[before[0]], OperationNode)
    (crossing,) = [n for n in nodes if isinstance(n, TransferNode)]
    assert (crossing.source, crossing.engine) == (1, 0)
    assert "all_reduce over 2 engines" in lowered.as_text("schedule")
    assert "cpu:1/host → cpu:0/host" in lowered.as_text("schedule")


def test_shards_are_joined_in_place() -> None:
    """One array is filled, and every shard written into it: no copies on the way."""
    text = tn.shard_map(lambda v: np.exp(v), mesh(4), P("i"), P("i")).lower(rows(8)).as_text("regions")
    assert text.count("starts as the memory of") == 4 and "starts as a copy" not in text


def test_a_shard_crosses_and_not_the_whole_array() -> None:
    inner = tn.shard_map(lambda v: tn.psum(v.sum(), "i"), mesh(2), P("i"), P())
    f = tn.jit(lambda x: inner(np.exp(x)), engine="cpu:0")
    x = rows(10)
    (crossing,) = f.lower(x).schedule.transfers
    assert str(crossing.bytes) == "8*(d0_0//2)"
    np.testing.assert_allclose(f(x), np.exp(x).sum())


def test_a_collective_is_a_level_of_its_own() -> None:
    """What needs its result comes after it, what its operands need before; nothing runs across."""
    f = tn.shard_map(
        lambda v: np.exp(v) * tn.psum(v.sum(), "i") + tn.pmax(np.exp(v).max(), "i"), mesh(2), P("i"), P("i")
    )
    nodes = f.lower(rows(6)).schedule.nodes
    meetings = [k for k, n in enumerate(nodes) if isinstance(n, CollectiveNode)]
    assert len(meetings) == 2
    for k, node in enumerate(nodes):
        if isinstance(node, OperationNode):
            assert all(j < k for j in node.dependencies)
            assert not any("all_reduce" == i.op.name for i in node.part.program.instructions)


def test_many_collectives_do_not_deadlock() -> None:
    """Chains and crossings on four engines, run again and again."""
    where = mesh(2, 2)

    def f(v: Any) -> Any:
        for k in range(6):
            v = v + tn.psum(v.sum(), "i" if k % 2 else "j")
            v = tn.ppermute(v, ("i", "j"), [(p, (p + 1) % 4) for p in range(4)])
        return v

    g = tn.shard_map(f, where, P(("i", "j")), P(("i", "j")))
    x = np.arange(8.0)
    shards = [x[2 * k : 2 * k + 2] for k in range(4)]
    for k in range(6):
        groups = [(0, 2), (1, 3)] if k % 2 else [(0, 1), (2, 3)]
        totals = {p: shards[g[0]].sum() + shards[g[1]].sum() for g in groups for p in g}
        added = [shards[p] + totals[p] for p in range(4)]
        shards = [added[(p - 1) % 4] for p in range(4)]
    for _ in range(50):
        assert np.array_equal(g(x), np.concatenate(shards))


def test_an_error_on_one_engine_ends_the_call() -> None:
    f = tn.shard_map(lambda v, k: tn.psum(v[k], "i"), mesh(2), (P("i"), P("i")), P())
    x = rows(8)
    with pytest.raises(IndexError, match="indices contain 4"):
        f(x, np.array([0, 1, 0, 4]))
    np.testing.assert_allclose(f(x, np.array([0, 1, 0, 3])), x[[0, 1]] + x[[4, 7]])


def test_outer_arrays_stay_usable() -> None:
    """What a function under shard_map reads of the outer trace is the same everywhere and stays so."""

    @tn.jit
    def outer(x: Any) -> Any:
        table = np.zeros(3)
        table[0] = x.sum()
        inner = tn.shard_map(lambda v: v * table + np.ones(3), mesh(2), P("i"), P("i"))
        return inner(x) + table, tn.shard_map(lambda v: v - table, mesh(2), P("i"), P("i"))(x)

    x = rows(4, 3)
    table = np.array([x.sum(), 0, 0])
    first, second = outer(x)
    np.testing.assert_allclose(first, x * table + 1 + table)
    np.testing.assert_allclose(second, x - table)


def test_a_mesh_prints_and_compares() -> None:
    names = engines(2)
    where = tn.Mesh(names, "i")
    assert where == tn.Mesh([tn.default_runtime().engine(n) for n in names], ("i",)) and hash(where) == hash(mesh(2))
    assert where != tn.Mesh(names[::-1], "i")
    assert (where.shape, where.size, where.axis_names, where.engines) == ({"i": 2}, 2, ("i",), ("cpu:0", "cpu:1"))
    assert repr(where) == "Mesh(i: 2; cpu:0, cpu:1)"
    assert repr(P("i", None, ("i2", "j"))) == "P('i', None, ('i2', 'j'))" and P("i") == tn.PartitionSpec("i")


def test_engines_in_another_order() -> None:
    where = tn.Mesh(engines(2)[::-1], "i")
    x = np.arange(4.0)
    f = tn.shard_map(lambda v: v + 10 * tn.axis_index("i"), where, P("i"), P("i"))
    assert f(x).tolist() == [0, 1, 12, 13]
    assert f.lower(x).schedule.domains[0] == "cpu:1"
