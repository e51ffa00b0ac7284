"""Pytrees: nested containers in, a flat list of leaves and a hashable ``TreeDef`` out, and back.

Containers are tuples, lists, dicts (insertion order is kept), namedtuples, dataclasses, None (which holds nothing) and
the classes that were registered; everything else is a leaf. The names are those that JAX's users know.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import lru_cache, reduce as _reduce
from itertools import accumulate
from typing import Any, NamedTuple

from tenferro.tracer.exact import exact, told_apart
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.records import dataclass

Flatten = Callable[[Any], tuple[Iterable[Any], Hashable]]
Unflatten = Callable[[Any, Sequence[Any]], Any]
IsLeaf = Callable[[Any], bool]

MAX_DEPTH = 200  # opening takes two frames a level; Python allows 1,000 in all


@dataclass(frozen=True, slots=True)
class Container:
    """How one class opens and closes. ``entry(metadata, k)`` is the text that reaches child k, such as ``['w']``;
    ``is_keyed``: a dict, whose keys are in the structure."""

    flatten: Flatten
    unflatten: Unflatten
    entry: Callable[[Any, int], str]
    is_keyed: bool = False


@exact
@dataclass(frozen=True, slots=True)
class TreeDef:
    """The structure of a pytree without its leaves; equal and hashable by content. ``node`` None is a leaf; ``exact``
    tells metadata apart that Python calls equal."""

    node: type | None
    metadata: Hashable
    children: tuple[TreeDef, ...]
    exact: Hashable = None

    @property
    def num_leaves(self) -> int:
        return 1 if self.node is None else sum(c.num_leaves for c in self.children)

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """Rebuild the pytree with these leaves. ValueError unless there are exactly ``num_leaves`` of them."""
        return unflatten(self, leaves)

    def __str__(self) -> str:
        if self.node is None:
            return "*"
        if self.node is type(None):
            return "None"
        known = container(self.node)
        inner = [str(c) for c in self.children]
        if known is not None and known.is_keyed:
            inner = [f"{known.entry(self.metadata, k)[1:-1]}: {text}" for k, text in enumerate(inner)]
        elif self.metadata:  # static fields, or what a class keeps apart from its children
            inner.append(f"metadata={self.metadata!r}")
        return f"{self.node.__name__}({', '.join(inner)})"


LEAF = TreeDef(None, None, ())
NONE = TreeDef(type(None), None, ())

_containers: dict[type, Container] = {}
# Dataclasses and namedtuples found on the way; kept apart so that a later registration wins.
_found: dict[type, Container | None] = {}


def _item_entry(metadata: Any, k: int) -> str:
    return f"[{k}]"


def _key_entry(metadata: Any, k: int) -> str:
    return f"[{metadata[1][k]!r}]"


@dataclass(frozen=True, slots=True)
class Factory:
    """A defaultdict's factory, by identity."""

    make: Callable[[], Any] | None


def _flatten_defaultdict(tree: defaultdict[Any, Any]) -> tuple[Iterable[Any], Hashable]:
    return tree.values(), (Factory(tree.default_factory), tuple(tree))


def _unflatten_defaultdict(metadata: tuple[Factory, tuple[Any, ...]], children: Sequence[Any]) -> Any:
    return defaultdict(metadata[0].make, zip(metadata[1], children, strict=True))


def _flatten_sequence(tree: Sequence[Any]) -> tuple[Iterable[Any], Hashable]:
    return tree, None


def _dict_container(kind: type[dict[Any, Any]]) -> Container:
    def unflatten_dict(keys: Any, children: Sequence[Any]) -> Any:
        return kind(zip(keys, children, strict=True))

    return Container(lambda tree: (tree.values(), tuple(tree)), unflatten_dict, lambda keys, k: f"[{keys[k]!r}]", True)


def _register_builtin() -> None:
    _containers[tuple] = Container(_flatten_sequence, lambda _, children: tuple(children), _item_entry)
    _containers[list] = Container(_flatten_sequence, lambda _, children: list(children), _item_entry)
    _containers[dict] = _dict_container(dict)
    _containers[OrderedDict] = _dict_container(OrderedDict)
    _containers[defaultdict] = Container(_flatten_defaultdict, _unflatten_defaultdict, _key_entry, True)


_register_builtin()


def register_pytree_node(nodetype: type, flatten_func: Flatten, unflatten_func: Unflatten) -> None:
    """Make a class a container: ``flatten_func(x) -> (children, metadata)``, ``unflatten_func(metadata, children)``.

    The metadata must be hashable and comparable. ValueError if the class is registered already.
    """
    if nodetype in _containers:
        raise ValueError(f"register_pytree_node: class {nodetype.__name__} is registered already; register it once")
    _containers[nodetype] = Container(flatten_func, unflatten_func, lambda _, k: f"<{k}>")
    _found.pop(nodetype, None)


def register_pytree_node_class(cls: type[Any]) -> type[Any]:
    """Class decorator; ``tree_flatten(self)`` and a classmethod ``tree_unflatten(metadata, children)`` are needed."""
    register_pytree_node(cls, lambda x: x.tree_flatten(), cls.tree_unflatten)
    return cls


def register_dataclass(
    nodetype: type[Any], data_fields: Iterable[str] | None = None, meta_fields: Iterable[str] | None = None
) -> type[Any]:
    """Say which fields of a dataclass are children and which belong to the structure; class decorator.

    A dataclass is a container unregistered too; without lists ``metadata={"static": True}`` tells the fields apart."""
    if (data_fields is None) != (meta_fields is None):
        given, missing = ("data_fields", "meta_fields") if meta_fields is None else ("meta_fields", "data_fields")
        raise TypeError(f"register_dataclass: {given} without {missing}; both or none is needed{at(user_line())}")
    if nodetype in _containers:
        raise ValueError(f"register_dataclass: class {nodetype.__name__} is registered already; register it once")
    if data_fields is None or meta_fields is None:
        made = _dataclass_container(nodetype)
    else:
        made = _fields_container(nodetype, tuple(data_fields), tuple(meta_fields))
    _containers[nodetype] = made
    _found.pop(nodetype, None)
    return nodetype


def is_registered(cls: type) -> bool:
    """Whether the class is a built-in container or was registered (dataclasses and namedtuples need not be)."""
    return cls in _containers


def _dataclass_container(cls: type) -> Container:
    """Fields are children; those declared with ``metadata={"static": True}`` belong to the structure."""
    fields = dataclasses.fields(cls)
    static = tuple(f.name for f in fields if f.metadata.get("static"))
    return _fields_container(cls, tuple(f.name for f in fields if not f.metadata.get("static")), static)


def _fields_container(cls: type, names: tuple[str, ...], static: tuple[str, ...]) -> Container:
    def flatten_fields(x: Any) -> tuple[Iterable[Any], Hashable]:
        return [getattr(x, n) for n in names], tuple(getattr(x, n) for n in static)

    def unflatten_fields(values: Any, children: Sequence[Any]) -> Any:
        # Not through the constructor: __post_init__ may convert or check, which the first construction has done.
        x: Any = object.__new__(cls)
        for name, value in (*zip(names, children, strict=True), *zip(static, values, strict=True)):
            object.__setattr__(x, name, value)
        return x

    return Container(flatten_fields, unflatten_fields, lambda _, k: f".{names[k]}")


def _find(cls: type) -> Container | None:
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        names = cls._fields
        return Container(lambda x: (x, None), lambda _, children: cls(*children), lambda _, k: f".{names[k]}")
    if dataclasses.is_dataclass(cls) and not cls.__module__.startswith("tenferro."):
        return _dataclass_container(cls)
    return None


def container(cls: type) -> Container | None:
    """How the class opens, None for a leaf's class."""
    known = _containers.get(cls)
    if known is not None:
        return known
    if cls not in _found:
        _found[cls] = _find(cls)
    return _found[cls]


def _open(tree: Any, leaves: list[Any], is_leaf: IsLeaf | None, what: str, room: int) -> TreeDef:
    """``room``: how many levels may be opened from here on."""
    if is_leaf is not None and is_leaf(tree):
        leaves.append(tree)
        return LEAF
    if tree is None:
        return NONE
    node = container(type(tree))
    if node is None:
        leaves.append(tree)
        return LEAF
    if not room:
        raise ValueError(
            f"{what} is nested more than {MAX_DEPTH} levels deep, down to a {type(tree).__name__}; fewer levels are "
            f"needed, and no container that contains itself{at(user_line())}"
        )
    children, metadata = node.flatten(tree)
    opened = tuple([_open(c, leaves, is_leaf, what, room - 1) for c in children])
    return TreeDef(type(tree), metadata, opened, told_apart(metadata))


def flatten(tree: Any, is_leaf: IsLeaf | None = None) -> tuple[list[Any], TreeDef]:
    """The leaves in order, and the structure. ValueError for containers nested more than 200 levels deep."""
    return opened(tree, "flatten: the pytree", is_leaf)


def opened(tree: Any, what: str, is_leaf: IsLeaf | None = None) -> tuple[list[Any], TreeDef]:
    """``flatten``; ``what`` names the pytree in errors, such as ``f: argument x``."""
    leaves: list[Any] = []
    definition = _open(tree, leaves, is_leaf, what, MAX_DEPTH)
    return leaves, definition


def _close(definition: TreeDef, leaves: Iterator[Any]) -> Any:
    if definition.node is None:
        return next(leaves)
    if definition.node is type(None):
        return None
    node = container(definition.node)
    assert node is not None
    return node.unflatten(definition.metadata, [_close(c, leaves) for c in definition.children])


def unflatten(treedef: TreeDef, leaves: Iterable[Any]) -> Any:
    """The pytree of this structure with these leaves. ValueError unless their number fits."""
    check_structure(treedef, "tree.unflatten: treedef")
    values = list(leaves)
    if len(values) != treedef.num_leaves:
        raise ValueError(
            f"tree.unflatten: {len(values)} leaves; the structure {treedef} has {treedef.num_leaves}{at(user_line())}"
        )
    return _close(treedef, iter(values))


def check_structure(treedef: Any, what: str) -> None:
    """TypeError for what is no structure."""
    if not isinstance(treedef, TreeDef):
        raise TypeError(
            f"{what} of class {type(treedef).__name__}; a structure is needed, tree.structure(x) gives "
            f"one{at(user_line())}"
        )


@lru_cache(maxsize=1024)
def paths(treedef: TreeDef) -> tuple[str, ...]:
    """For each leaf the text that reaches it from the root, such as ``['w'][0].bias``."""
    if treedef.node is None:
        return ("",)
    if not treedef.children:
        return ()
    node = container(treedef.node)
    assert node is not None
    return tuple(
        node.entry(treedef.metadata, k) + rest
        for k, child in enumerate(treedef.children)
        for rest in paths(child)
    )  # fmt: skip


def leaves(tree: Any, is_leaf: IsLeaf | None = None) -> list[Any]:
    """The leaves in order."""
    return flatten(tree, is_leaf)[0]


def structure(tree: Any, is_leaf: IsLeaf | None = None) -> TreeDef:
    """The structure alone."""
    return flatten(tree, is_leaf)[1]


def arrangement(found: TreeDef, wanted: TreeDef) -> list[int] | None:
    """For each leaf of the wanted structure its place among the leaves of the found one. Dicts that differ in nothing
    but the order of their keys are one structure (an OrderedDict's order is part of it); None where more differs."""
    return _arranged(found, wanted, 0)


def _arranged(found: TreeDef, wanted: TreeDef, start: int) -> list[int] | None:
    if found == wanted:
        return list(range(start, start + found.num_leaves))
    if found.node is not wanted.node or len(found.children) != len(wanted.children):
        return None
    order = _order(found, wanted)
    if order is None:
        return None
    starts = list(accumulate((c.num_leaves for c in found.children), initial=start))
    places: list[int] = []
    for k, child in zip(order, wanted.children, strict=True):
        inner = _arranged(found.children[k], child, starts[k])
        if inner is None:
            return None
        places += inner
    return places


def _order(found: TreeDef, wanted: TreeDef) -> Sequence[int] | None:
    """For each child of the wanted container the number of the found one's that belongs there."""
    if (found.metadata, found.exact) == (wanted.metadata, wanted.exact):
        return range(len(wanted.children))
    mine, theirs = _keys(found.node, found.metadata), _keys(wanted.node, wanted.metadata)
    if mine is None or theirs is None or mine[0] != theirs[0]:
        return None
    numbers = {(k, told_apart((k,))): n for n, k in enumerate(mine[1])}
    places = [numbers.get((k, told_apart((k,)))) for k in theirs[1]]
    return None if None in places else places  # type: ignore[return-value]


def _keys(node: type | None, metadata: Any) -> tuple[Hashable, tuple[Any, ...]] | None:
    """Of a dict whose order says nothing: what else belongs to its structure, and its keys."""
    if node is dict:
        return None, metadata
    return metadata if node is defaultdict else None


def in_order_of(tree: Any, wanted: TreeDef, is_leaf: IsLeaf | None = None) -> Any:
    """The tree with its dicts' keys in the order of a structure; as it is where more differs than that."""
    values, found = flatten(tree, is_leaf)
    order = None if found == wanted else arrangement(found, wanted)
    return tree if order is None else _close(wanted, iter([values[k] for k in order]))


def paired(prefix: Any, tree: Any) -> tuple[list[tuple[Any, Any]], str]:
    """The children of two containers, side by side, those of dicts by their keys; and in words what forbids it."""
    first, second = _open_one(prefix), _open_one(tree)
    if first is None or second is None or first.node is not second.node:
        return [], f"of class {type(prefix).__name__} for {_named(tree)}"
    if first.node in (dict, defaultdict):
        keys = [(k, told_apart((k,))) for k in tree]
        given = {(k, told_apart((k,))): v for k, v in prefix.items()}
        if given.keys() == set(keys):
            return [(given[k], v) for k, v in zip(keys, tree.values(), strict=True)], ""
        return [], f"with {_listed(prefix)} for one with {_listed(tree)}"
    if len(first.children) != len(second.children):
        return [], f"with {len(first.children)} entries for one with {len(second.children)}"
    if (first.metadata, first.exact) != (second.metadata, second.exact):
        return [], f"with {first.metadata!r} beside its children for one with {second.metadata!r}"
    return list(zip(first.children, second.children, strict=True)), ""


class _Opened(NamedTuple):
    """A container, one level deep."""

    node: type
    metadata: Hashable
    exact: Hashable
    children: list[Any]


def _open_one(x: Any) -> _Opened | None:
    known = container(type(x))
    if x is None or known is None:
        return None
    children, metadata = known.flatten(x)
    return _Opened(type(x), metadata, told_apart(metadata), list(children))


def _named(x: Any) -> str:
    return f"one of class {type(x).__name__}" if x is None or container(type(x)) is not None else "a leaf"


def _listed(keys: Iterable[Any]) -> str:
    names = ", ".join([repr(k) for k in keys])
    return f"the keys {names}" if names else "no keys"


def map(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf | None = None) -> Any:
    """Apply ``f`` leaf by leaf; further trees must have the structure of the first, dicts in any order of their keys.
    ValueError if one has not."""
    first, definition = flatten(tree, is_leaf)
    columns = [first]
    for k, other in enumerate(rest):
        values, found = flatten(other, is_leaf)
        order = arrangement(found, definition)
        if order is None:
            raise ValueError(
                f"tree.map: tree {k + 1} has structure {found}; that of tree 0, {definition}, is "
                f"needed{at(user_line())}"
            )
        columns.append([values[place] for place in order])
    return unflatten(definition, [f(*xs) for xs in zip(*columns, strict=True)])


def reduce(f: Callable[[Any, Any], Any], tree: Any, initializer: Any = None) -> Any:
    """Combine the leaves from the left."""
    values = leaves(tree)
    return _reduce(f, values) if initializer is None else _reduce(f, values, initializer)


def all(tree: Any) -> bool:
    """Whether every leaf is true."""
    for leaf in leaves(tree):
        if not leaf:
            return False
    return True
