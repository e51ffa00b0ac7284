"""Where the leaves of a pytree stand: pytrees in, leaves with the keys that lead to them out; and trees turned inside
out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from tenferro.tracer import tree
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.records import dataclass
from tenferro.tracer.tree import IsLeaf, TreeDef


@dataclass(frozen=True, slots=True)
class DictKey:
    """An entry of a dict."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"


@dataclass(frozen=True, slots=True)
class SequenceKey:
    """An entry of a tuple or a list."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx}]"


@dataclass(frozen=True, slots=True)
class GetAttrKey:
    """A field of a dataclass or a namedtuple."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"


@dataclass(frozen=True, slots=True)
class FlattenedIndexKey:
    """A child of a registered class, by its number."""

    key: int

    def __str__(self) -> str:
        return f"<{self.key}>"


Key: TypeAlias = DictKey | SequenceKey | GetAttrKey | FlattenedIndexKey
KeyPath: TypeAlias = tuple[Key, ...]


def keystr(path: KeyPath) -> str:
    """The text of a path, such as ``['w'][0].bias``."""
    return "".join(map(str, path))


def _key(definition: TreeDef, k: int) -> Key:
    """What leads to child ``k`` of a container."""
    assert definition.node is not None
    known = tree.container(definition.node)
    assert known is not None
    if known.is_keyed:
        keys: Any = definition.metadata
        return DictKey((keys[1] if definition.node.__name__ == "defaultdict" else keys)[k])
    text = known.entry(definition.metadata, k)
    if text.startswith("."):
        return GetAttrKey(text[1:])
    return SequenceKey(k) if text.startswith("[") else FlattenedIndexKey(k)


def _paths(definition: TreeDef) -> Iterator[KeyPath]:
    if definition.node is None:
        yield ()
    for k, child in enumerate(definition.children):
        for rest in _paths(child):
            yield (_key(definition, k), *rest)


def flatten_with_path(tree_: Any, is_leaf: IsLeaf | None = None) -> tuple[list[tuple[KeyPath, Any]], TreeDef]:
    """Leaves with their paths, in order, and the structure."""
    values, definition = tree.flatten(tree_, is_leaf)
    return list(zip(_paths(definition), values, strict=True)), definition


def leaves_with_path(tree_: Any, is_leaf: IsLeaf | None = None) -> list[tuple[KeyPath, Any]]:
    """Leaves with their paths, in order."""
    return flatten_with_path(tree_, is_leaf)[0]


def map_with_path(f: Callable[..., Any], tree_: Any, *rest: Any, is_leaf: IsLeaf | None = None) -> Any:
    """``f(path, leaf, ...)`` for every leaf; further trees must have the structure of the first."""
    found = iter(list(_paths(tree.structure(tree_, is_leaf))))
    return tree.map(lambda *xs: f(next(found), *xs), tree_, *rest, is_leaf=is_leaf)


def transpose(outer_treedef: TreeDef, inner_treedef: TreeDef | None, pytree_to_transpose: Any) -> Any:
    """A pytree of the outer structure whose leaves are pytrees of the inner one, turned inside out.

    inner_treedef: None where the subtrees tell it. ValueError for a pytree of another structure."""
    tree.check_structure(outer_treedef, "tree.transpose: outer_treedef")
    if inner_treedef is not None:
        tree.check_structure(inner_treedef, "tree.transpose: inner_treedef")
    values, found = tree.flatten(pytree_to_transpose)
    if inner_treedef is None:
        inner_treedef = _inner(outer_treedef, found)
    count, each = outer_treedef.num_leaves, inner_treedef.num_leaves
    order = tree.arrangement(found, _nested(outer_treedef, inner_treedef))
    if order is None:
        raise ValueError(
            f"tree.transpose: a pytree of structure {found}; {outer_treedef} of {inner_treedef} is "
            f"needed{at(user_line())}"
        )
    columns = [[values[order[i * each + k]] for i in range(count)] for k in range(each)]
    return tree.unflatten(inner_treedef, [tree.unflatten(outer_treedef, column) for column in columns])


def _inner(outer: TreeDef, found: TreeDef) -> TreeDef:
    """What stands where the outer structure has its first leaf."""
    if outer.node is None:
        return found
    for mine, theirs in zip(outer.children, found.children, strict=False):
        if mine.num_leaves:
            return _inner(mine, theirs)
    raise ValueError(f"tree.transpose: a structure without leaves, {outer}; inner_treedef is needed{at(user_line())}")


def _nested(outer: TreeDef, inner: TreeDef) -> TreeDef:
    if outer.node is None:
        return inner
    return TreeDef(outer.node, outer.metadata, tuple([_nested(c, inner) for c in outer.children]), outer.exact)
