"""What does not fit is refused with the op, what was found, what is needed, and the user's line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.errors import UnknownEngineError
from tenferro.tracer.errors import LeakError, MutationError, TenferroError
from tests.sharding.meshes import engines, mesh, rows

P = tn.P
X = rows(8, 3)


def shards(function: Callable[..., Any], in_specs: Any, out_specs: Any, *args: Any, **options: Any) -> Any:
    return tn.shard_map(function, mesh(2, 2), in_specs, out_specs, **options)(*args)


CASES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "uneven": (
        lambda: shards(lambda v: v, P("i"), P("i"), X[:5]), ValueError,
        r"axis 0 of argument v has size v.shape\[0\] = 5; a multiple of 2 is needed, .*'i'",
    ),
    "uneven over two axes": (
        lambda: shards(lambda v: v, P(("i", "j")), P(("i", "j")), X[:6]), ValueError, r"a multiple of 4 .*'i' and 'j'",
    ),
    "in_specs names no axis": (
        lambda: shards(lambda v: v, P("k"), P(), X), ValueError,
        r"in_specs holds P\('k'\), .*'k'; one of 'i', 'j' is needed",
    ),
    "out_specs names no axis": (lambda: shards(lambda v: v, P(), P("k"), X), ValueError, r"out_specs holds P\('k'\)"),
    "a spec that is none": (lambda: shards(lambda v: v, "i", P(), X), TypeError, r"in_specs holds 'i' of class str"),
    "too few specs": (lambda: shards(lambda a, b: a, (P(),), P(), X, X), ValueError, r"in_specs has 1 specs, .* 2 arg"),
    "another structure": (
        lambda: shards(lambda d: d["a"], ({"b": P()},), P(), {"a": X}), ValueError,
        r"in_specs has the structure dict.*keys 'b' for one with the keys 'a'",
    ),
    "another structure of results": (
        lambda: shards(lambda v: (v, v), P("i"), (P("i"),), X), ValueError, r"out_specs has the structure tuple",
    ),
    "rank": (
        lambda: shards(lambda v: v, P("i", "j"), P(), X[:, 0]), ValueError, r"argument v has rank 1, .* 2 axes",
    ),
    "rank of a result": (
        lambda: shards(lambda v: tn.psum(v.sum(), ("i", "j")), P("i"), P("i"), X), ValueError, r"a result has rank 0",
    ),
    "a number is cut": (
        lambda: shards(lambda v, n: v, (P("i"), P("i")), P("i"), X, 3), ValueError, r"argument n of class int.*P\(\)",
    ),
    "a number is joined": (
        lambda: shards(lambda v: v.shape[0], P("i"), P("i"), X), ValueError, r"a result of class int has spec P\('i'\)",
    ),
    "a differing result": (
        lambda: shards(lambda v: v.sum(), P("i"), P(), X), ValueError, r"P\(\) for a result .* axis 'i'; .*tn.psum",
    ),
    "a result that differs along the other axis": (
        lambda: shards(lambda v: tn.psum(v.sum(), "i"), P(("i", "j")), P(), X), ValueError, r"mesh axis 'j'",
    ),
    "a differing size": (lambda: shards(lambda v: v[v > 0].shape[0], P("i"), P(), X), ValueError, r"for a size that"),
    "sizes known when it has run": (
        lambda: shards(lambda v: v[v[:, 0] > 0].T, P("i"), P("i"), X), ValueError, r"axis 1 of a result has sizes",
    ),
    "sums of such sizes": (
        lambda: shards(lambda v: tn.psum(v[v > 0], "i"), P("i"), P(), X), ValueError, r"one type are needed",
    ),
    "an index of the mesh": (lambda: shards(lambda v: tn.axis_index("j"), P("i"), P(), X), ValueError, r"'j'"),
    "an axis twice": (lambda: P("i", "i"), ValueError, r"named twice"),
    "no axis": (lambda: P(3), TypeError, r"PartitionSpec: an axis is 3"),
    "unknown axis": (
        lambda: shards(lambda v: tn.psum(v, "k"), P("i"), P(), X), ValueError, r"^psum: axis name 'k' .*'i', 'j'",
    ),
    "an axis name of another kind": (
        lambda: shards(lambda v: tn.psum(v, 1), P("i"), P(), X), TypeError, r"^psum: axis_name is 1",
    ),
    "outside": (lambda: tn.psum(X, "i"), TypeError, r"^psum: axis name 'i' outside shard_map"),
    "in jit alone": (
        lambda: tn.jit(lambda v: tn.axis_index("i") + v)(X), TypeError, r"^axis_index: .* outside shard_map",
    ),
    "size outside": (lambda: tn.axis_size("i"), TypeError, r"^axis_size: .* outside shard_map"),
    "nested": (
        lambda: shards(tn.shard_map(lambda v: v, mesh(2), P("i"), P("i")), P("i"), P("i"), X), TypeError,
        r"inside another shard_map",
    ),
    "a place inside": (lambda: shards(_placed, P("i"), P("i"), X), TypeError, r"^on: inside shard_map"),
    "a branch on an index": (lambda: shards(_branch, P("i"), P("i"), X), TypeError, r"^if: .*numpy.where"),
    "a write into an argument": (lambda: shards(_write, P("i"), P("i"), X), ValueError, r"argument v .*v.copy\(\)"),
    "keywords": (
        lambda: tn.shard_map(_keyword, mesh(2), P("i"), P("i"))(X, k=X), TypeError, r"arguments k by keyword",
    ),
    "uneven scatter": (
        lambda: shards(lambda v: tn.psum_scatter(v, "i", tiled=True), P(), P("i"), X[:3]), ValueError,
        r"^psum_scatter: axis 0 .* over 2 engines; a multiple of 2",
    ),
    "scatter of another size": (
        lambda: shards(lambda v: tn.psum_scatter(v, "i"), P(), P("i"), X[:3]), ValueError, r"just 2 is needed",
    ),
    "permute": (
        lambda: shards(lambda v: tn.ppermute(v, "i", [(0, 1), (1, 1)]), P("i"), P("i"), X), ValueError,
        r"^ppermute: perm has destinations \[1, 1\]; numbers from 0 to 1",
    ),
    "unknown engine": (lambda: tn.Mesh(["cpu:77"], "i"), UnknownEngineError, r"^Mesh: engine 'cpu:77' is not reg"),
    "an engine twice": (lambda: tn.Mesh(engines(1) * 2, "i"), ValueError, r"each once"),
    "no engines": (lambda: tn.Mesh([], "i"), ValueError, r"at least one"),
    "names and arrangement": (lambda: tn.Mesh(engines(2), ("i", "j")), ValueError, r"arranged \(2,\)"),
    "a ragged arrangement": (lambda: tn.Mesh([["cpu:0"], []], ("i", "j")), ValueError, r"rectangular"),
    "no engine at all": (lambda: tn.Mesh([3], "i"), TypeError, r"an engine is 3 of class int"),
    "no mesh": (lambda: tn.shard_map(lambda v: v, "i", P(), P()), TypeError, r"a tn.Mesh is needed"),
    "no function": (lambda: tn.shard_map(3, mesh(1), P(), P()), TypeError, r"a function is needed"),
}  # fmt: skip


def _placed(v: Any) -> Any:
    with tn.on("cpu:0"):
        return v + 1


def _branch(v: Any) -> Any:
    return v if tn.axis_index("i") == 0 else -v


def _write(v: Any) -> Any:
    v[0] = 1
    return v


def _keyword(v: Any, *, k: Any) -> Any:
    return v + k


@pytest.mark.parametrize("name", CASES)
def test_refused(name: str) -> None:
    engines(4)
    call, error, text = CASES[name]
    with pytest.raises(error, match=text) as caught:
        call()
    assert __file__ in str(caught.value), str(caught.value)


def test_check_vma_can_be_turned_off() -> None:
    assert shards(lambda v: v.sum(), P("i"), P(), X, check_vma=False) == pytest.approx(X[:4].sum())


def test_contents_of_captured_shards_are_not_asked_of_the_first_engine() -> None:
    """A branch on one engine's shard would be taken for all of them."""
    table = np.array([1.0, 1.0, -1.0, -1.0])

    def inner(v: Any) -> Any:
        return v if v.sum() > 0 else -v

    f = tn.jit(lambda: tn.shard_map(inner, mesh(2), P("i"), P("i"))(table))
    with pytest.raises(TypeError, match=r"^if: of a traced value"):
        f()
    everywhere = tn.jit(lambda x: tn.shard_map(lambda v: v if table.sum() == 0 else -v, mesh(2), P("i"), P("i"))(x))
    assert everywhere(table).tolist() == table.tolist()


def test_a_shard_written_outside_is_refused_where_it_is_used() -> None:
    def written(x: Any) -> Any:
        total = np.zeros(())

        def inner(v: Any) -> Any:
            total[...] = v.sum()
            return v

        return tn.shard_map(inner, mesh(2), P("i"), P("i"))(x), total

    for f in (written, lambda x: written(x)[1] + 1):
        with pytest.raises(LeakError, match=r"one engine's part"):
            tn.jit(f)(X)


def test_a_shard_stored_outside_is_refused() -> None:
    kept = []

    def inner(v: Any) -> Any:
        kept.append(v * 2)
        return v

    with pytest.raises(MutationError, match=r"kept went from 0 to 1"):
        tn.shard_map(inner, mesh(2), P("i"), P("i"))(X)


def test_nothing_is_kept_of_a_failed_trace() -> None:
    f = tn.shard_map(lambda v: v * 2, mesh(2), P("i"), P("i"))
    with pytest.raises(TenferroError):
        f(X[:3])
    assert np.array_equal(f(X), X * 2)
    with pytest.raises(TenferroError):
        f(X[:7])
    assert f.cache_info().programs == 1
