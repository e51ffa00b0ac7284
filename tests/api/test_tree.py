"""Pytrees: containers open and close without loss."""

from __future__ import annotations

import re
from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass, field

import pytest

import tenferro as tn
from tenferro.tracer import tree

Point = namedtuple("Point", "x y")


@dataclass
class Layer:
    weight: object
    bias: object
    name: str = field(default="layer", metadata={"static": True})


class Pair:
    def __init__(self, a, b):
        self.a, self.b = a, b


tree.register_pytree_node(Pair, lambda p: ((p.a, p.b), None), lambda _, children: Pair(*children))


@pytest.mark.parametrize(
    "value",
    [
        1,
        (),
        (1, (2, [3])),
        {"b": 1, "a": [2, None]},
        OrderedDict([("z", 1), ("a", 2)]),
        Point(1, {"k": 2}),
        Layer(1, [2, 3], "first"),
        None,
    ],
)
def test_round_trip(value):
    leaves, definition = tree.flatten(value)
    assert definition.num_leaves == len(leaves)
    assert tree.unflatten(definition, leaves) == value
    assert hash(definition) == hash(tree.structure(value))
    assert definition == tree.structure(value)


def test_dict_order_is_kept():
    leaves, definition = tree.flatten({"b": 1, "a": 2})
    assert leaves == [1, 2]
    assert list(definition.unflatten([10, 20])) == ["b", "a"]
    assert definition != tree.structure({"a": 1, "b": 2})


def test_defaultdict_keeps_its_factory():
    leaves, definition = tree.flatten(defaultdict(list, a=1))
    back = definition.unflatten(leaves)
    assert back["missing"] == [] and back["a"] == 1


def test_registered_class():
    doubled = tree.map(lambda x: 2 * x, Pair(1, [2, 3]))
    assert isinstance(doubled, Pair) and (doubled.a, doubled.b) == (2, [4, 6])
    with pytest.raises(ValueError, match="registered already"):
        tree.register_pytree_node(Pair, lambda p: ((), None), lambda *_: None)


def test_static_fields_belong_to_the_structure():
    assert tree.leaves(Layer(1, 2, "a")) == [1, 2]
    assert tree.structure(Layer(1, 2, "a")) != tree.structure(Layer(1, 2, "b"))


def test_paths():
    value = {"w": [1, Point(2, 3)], "layer": Layer(4, 5)}
    expected = ("['w'][0]", "['w'][1].x", "['w'][1].y", "['layer'].weight", "['layer'].bias")
    assert tree.paths(tree.structure(value)) == expected


def test_map_over_several_trees():
    assert tree.map(lambda a, b: a + b, {"x": 1}, {"x": 10}) == {"x": 11}
    with pytest.raises(ValueError, match="structure"):
        tree.map(lambda a, b: a, [1, 2], [1])


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        ({"a": 1}, {"b": 1}, "dict('b': *); that of tree 0, dict('a': *), is needed"),
        ({"a": (1, None)}, {}, "dict(); that of tree 0, dict('a': tuple(*, None)), is needed"),
        (OrderedDict(a=1), OrderedDict(b=1), "OrderedDict('b': *); that of tree 0, OrderedDict('a': *), is"),
        (defaultdict(int, a=1), defaultdict(int, b=1), "defaultdict('b': *); that of tree 0, defaultdict('a': *), is"),
        (
            Layer(1, 2),
            Layer(1, 2, "b"),
            "Layer(*, *, metadata=('b',)); that of tree 0, Layer(*, *, metadata=('layer',)),",
        ),
    ],
)
def test_structures_that_differ_look_different(first, second, text):
    with pytest.raises(ValueError, match=rf"^tree.map: tree 1 has structure {re.escape(text)}.*test_tree.py:\d+\)$"):
        tree.map(lambda a, b: a, first, second)


def test_map_matches_dicts_by_key():
    a, b = {"x": 1, "y": [{"u": 2, "v": (3, 4)}]}, {"y": [{"v": (30, 40), "u": 20}], "x": 10}
    found = tree.map(lambda a, b: (a, b), a, b)
    assert found == {"x": (1, 10), "y": [{"u": (2, 20), "v": ((3, 30), (4, 40))}]}
    assert list(found) == ["x", "y"]
    first, second = defaultdict(list, {"x": 1, "y": 2}), defaultdict(list, {"y": 20, "x": 10})
    assert tree.map(lambda a, b: a + b, first, second) == {"x": 11, "y": 22}
    for other in ({"y": 1, "z": 2}, {"x": 1}, {"x": 1, True: 2}, OrderedDict(y=1, x=2)):
        with pytest.raises(ValueError, match="structure"):
            tree.map(lambda a, b: a, {"x": 1, "y": 2}, other)
    pairs: list[tuple[object, object]] = [
        ({1: 0, 2: 0}, {2: 0, True: 0}),
        (OrderedDict(x=1, y=2), OrderedDict(y=2, x=1)),
    ]
    for one, turned in pairs:
        with pytest.raises(ValueError, match="structure"):
            tree.map(lambda a, b: a, one, turned)


def test_is_leaf_stops_the_opening():
    assert tree.leaves([(1, 2), (3, 4)], is_leaf=lambda x: isinstance(x, tuple)) == [(1, 2), (3, 4)]


def test_unflatten_needs_the_right_number():
    with pytest.raises(ValueError, match="1 leaves"):
        tree.unflatten(tree.structure([1, 2]), [1])


def test_what_is_no_structure_is_refused():
    three = 3
    with pytest.raises(TypeError, match=r"tree.unflatten: treedef of class int; .*test_tree"):
        tree.unflatten(three, [1])
    with pytest.raises(TypeError, match=r"tree.transpose: outer_treedef of class int; .*test_tree"):
        tn.tree.transpose(three, tree.structure([1]), [1])
    with pytest.raises(TypeError, match=r"tree.transpose: inner_treedef of class int; .*test_tree"):
        tn.tree.transpose(tree.structure([1]), three, [1])


def test_reduce_and_all():
    assert tree.reduce(lambda a, b: a + b, [1, (2, 3)]) == 6
    assert tree.all([True, {"a": 1}]) and not tree.all([True, 0])


def nested(levels):
    value: object = 1.0
    for _ in range(levels):
        value = [value]
    return value


def test_deep_containers_are_named():
    assert tree.unflatten(tree.structure(nested(tree.MAX_DEPTH)), [1.0]) == nested(tree.MAX_DEPTH)
    assert tn.jit(lambda t: tree.map(lambda v: v + 1, t))(nested(tree.MAX_DEPTH))[0][0] is not None
    deep = nested(tree.MAX_DEPTH + 1)
    with pytest.raises(ValueError, match="flatten: the pytree is nested more than 200 levels deep, down to a list"):
        tree.flatten(deep)
    with pytest.raises(ValueError, match=r"<lambda>: argument t is nested more than 200 levels.*test_tree.py:\d+"):
        tn.jit(lambda t: t)(deep)
    with pytest.raises(ValueError, match="<lambda>: the result is nested more than 200 levels"):
        tn.jit(lambda x: deep)(1.0)
    with pytest.raises(ValueError, match="<lambda>: static argument t is nested too deeply"):
        tn.jit(lambda x, t: x, static_argnames="t")(1.0, (nested_tuple(3000),))


def nested_tuple(levels):
    value: object = ()
    for _ in range(levels):
        value = (value,)
    return value


def test_a_container_that_contains_itself_is_named():
    own = {}
    own["own"] = own
    with pytest.raises(ValueError, match="down to a dict; fewer levels are needed, and no container that contains it"):
        tn.jit(lambda t: 1.0)(own)
