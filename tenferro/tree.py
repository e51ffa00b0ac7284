"""Pytrees, under the names that JAX's users know: ``tn.tree.map``, ``flatten``, ``unflatten``, ``leaves`` and so on."""

from tenferro.key_paths import (
    DictKey as DictKey,
    FlattenedIndexKey as FlattenedIndexKey,
    GetAttrKey as GetAttrKey,
    SequenceKey as SequenceKey,
    flatten_with_path as flatten_with_path,
    keystr as keystr,
    leaves_with_path as leaves_with_path,
    map_with_path as map_with_path,
    transpose as transpose,
)
from tenferro.tracer.tree import (
    TreeDef as TreeDef,
    all as all,
    flatten as flatten,
    leaves as leaves,
    map as map,
    paths as paths,
    reduce as reduce,
    register_dataclass as register_dataclass,
    register_pytree_node as register_pytree_node,
    register_pytree_node_class as register_pytree_node_class,
    structure as structure,
    unflatten as unflatten,
)
