"""``tn.tree`` and ``tn.tree_util``: paths, trees turned inside out, and the older names; against JAX."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, namedtuple
from typing import Any

import numpy as np
import pytest

import tenferro as tn

jax = pytest.importorskip("jax")
Pair = namedtuple("Pair", "left right")
TREES = [
    {"a": [1, (2.0, None)], "b": Pair(3, {"c": 4})},
    [1, 2],
    (OrderedDict(z=1, y=2), defaultdict(int, k=3)),
    5,
    None,
    [],
]


@pytest.mark.parametrize("tree", TREES)
def test_paths(tree: Any):
    wanted = [(jax.tree_util.keystr(p), x) for p, x in jax.tree_util.tree_leaves_with_path(tree)]
    found = [(tn.tree.keystr(p), x) for p, x in tn.tree.leaves_with_path(tree)]
    assert sorted(found) == sorted(wanted)  # JAX sorts the keys of dicts
    assert [tn.tree.keystr(p) for p, _ in tn.tree.leaves_with_path(tree)] == list(
        tn.tree.paths(tn.tree.structure(tree))
    )


def test_keys_of_paths():
    path = tn.tree.leaves_with_path({"b": Pair(3, [4])})[1][0]
    assert path == (tn.tree.DictKey("b"), tn.tree.GetAttrKey("right"), tn.tree.SequenceKey(0))
    assert (path[0].key, path[1].name, path[2].idx) == ("b", "right", 0)  # type: ignore[union-attr]


def test_map_with_path():
    tree = TREES[0]
    found = tn.tree.map_with_path(lambda p, x, y: (tn.tree.keystr(p), x, y), tree, tree)
    assert found["b"].right["c"] == ("['b'].right['c']", 4, 4)
    assert tn.tree.map_with_path(lambda p, x: len(p), {"a": [1]}, is_leaf=lambda x: isinstance(x, list)) == {"a": 1}


def test_registered_classes_count_their_children():
    @tn.tree.register_pytree_node_class
    class Own:
        def __init__(self, *parts: Any) -> None:
            self.parts = parts

        def tree_flatten(self) -> Any:
            return self.parts, None

        @classmethod
        def tree_unflatten(cls, _: Any, parts: Any) -> Any:
            return cls(*parts)

    (_, (path, _)) = tn.tree.leaves_with_path(Own(1, 2))
    assert path == (tn.tree.FlattenedIndexKey(1),)
    assert tn.tree.keystr(path) == "<1>"


def test_transpose():
    outer, inner = [0, 0, 0], {"a": 0, "b": (0, 0)}
    tree = [{"a": k, "b": (10 * k, 100 * k)} for k in range(3)]
    wanted = jax.tree.transpose(jax.tree.structure(outer), jax.tree.structure(inner), tree)
    for given in (tn.tree.structure(inner), None):
        assert tn.tree.transpose(tn.tree.structure(outer), given, tree) == wanted
    with pytest.raises(ValueError, match="tree.transpose: a pytree of structure"):
        tn.tree.transpose(tn.tree.structure(outer), tn.tree.structure(inner), tree[:2])
    with pytest.raises(ValueError, match="without leaves"):
        tn.tree.transpose(tn.tree.structure([]), None, [])


def test_older_names():
    util, tree = tn.tree_util, TREES[0]
    leaves, definition = util.tree_flatten(tree)
    assert util.tree_leaves(tree) == leaves == [1, 2.0, 3, 4]
    assert util.tree_structure(tree) == definition
    assert util.tree_unflatten(definition, leaves) == tree
    assert util.tree_map(lambda x: x + 1, tree)["a"][0] == 2
    assert util.tree_reduce(lambda a, b: a + b, tree) == 10
    assert util.tree_all([True, [True]])
    for name in util.__all__:
        assert getattr(util, name) is not None


def test_partials_are_pytrees():
    partial = tn.tree_util.Partial(np.multiply, np.arange(3.0))

    @tn.jit
    def call(f: Any, x: Any) -> Any:
        return f(x)

    np.testing.assert_array_equal(call(partial, np.ones(3)), np.arange(3.0))
    np.testing.assert_array_equal(tn.grad(lambda p: p(2.0).sum())(partial).args[0], np.full(3, 2.0))
