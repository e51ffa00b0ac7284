"""``tn.tree`` under the older names: ``tree_map``, ``tree_leaves``, ``tree_flatten`` and so on."""

from __future__ import annotations

import functools
from typing import Any

from tenferro import tree
from tenferro.tree import (
    DictKey as DictKey,
    FlattenedIndexKey as FlattenedIndexKey,
    GetAttrKey as GetAttrKey,
    SequenceKey as SequenceKey,
    TreeDef as TreeDef,
    all as tree_all,
    flatten as tree_flatten,
    flatten_with_path as tree_flatten_with_path,
    keystr as keystr,
    leaves as tree_leaves,
    leaves_with_path as tree_leaves_with_path,
    map as tree_map,
    map_with_path as tree_map_with_path,
    reduce as tree_reduce,
    register_dataclass as register_dataclass,
    register_pytree_node as register_pytree_node,
    register_pytree_node_class as register_pytree_node_class,
    structure as tree_structure,
    transpose as tree_transpose,
    unflatten as tree_unflatten,
)

__all__ = [
    "DictKey", "FlattenedIndexKey", "GetAttrKey", "Partial", "SequenceKey", "TreeDef", "keystr",
    "register_dataclass", "register_pytree_node", "register_pytree_node_class", "tree_all", "tree_flatten",
    "tree_flatten_with_path", "tree_leaves", "tree_leaves_with_path", "tree_map", "tree_map_with_path",
    "tree_reduce", "tree_structure", "tree_transpose", "tree_unflatten",
]  # fmt: skip


class Partial(functools.partial[Any]):
    """``functools.partial`` as a pytree: its arguments are children, its function belongs to the structure."""


def _opened(x: Partial) -> tuple[tuple[Any, ...], Any]:
    return (x.args, x.keywords), x.func


tree.register_pytree_node(Partial, _opened, lambda func, parts: Partial(func, *parts[0], **parts[1]))
