"""Shapes without values: ``ShapeDtypeStruct``, ``eval_shape``, and programs of functions (``make_program``).

A function is traced on arrays that are nothing but a shape and a dtype; what it returns is told, and nothing runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenferro.structs import ShapeDtypeStruct
from tenferro.tracer.dim import Dim, as_extent, make_dim
from tenferro.tracer.dims import Extent, is_runtime
from tenferro.tracer.entry import trace_program
from tenferro.tracer.errors import ShapeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.program import ArrayType, SemanticProgram, Value
from tenferro.tracer.signature import check_function, function_name
from tenferro.tracer.substitution import bodies
from tenferro.tracer.trace import Trace, check_dtype, current_trace, is_tenferro_array, running_trace
from tenferro.tracer.traced import TracedArray
from tenferro.tracer.transform.inputs import Leaf, Opened, is_numeric, leaf_of, open_tree
from tenferro.tracer.transform.recording import taken_out
from tenferro.tracer.tree import opened, paths
from tenferro.transformed import Function


def eval_shape(fun: Function, *args: Any, **kwargs: Any) -> Any:
    """The shapes and dtypes that ``fun(*args, **kwargs)`` would have, as a pytree of ``tn.ShapeDtypeStruct``.

    Arguments: arrays and numbers, of which nothing but shape and dtype is looked at, or ``tn.ShapeDtypeStruct``; ints
    and what is no number are handed on. Nothing is computed.

    TraceError where ``fun`` asks for elements; ShapeError where a shape depends on elements."""
    check_function(fun, "eval_shape: fun")
    name = f"eval_shape({function_name(fun)})"
    if current_trace() is not None:
        return _shapes_inside(running_trace(name), fun, args, kwargs, name)
    found: list[Any] = []

    def run(_: list[Any]) -> Any:
        trace = running_trace(name)
        trace.is_once = True
        found.append(_shapes_inside(trace, fun, args, kwargs, name))

    trace_program(fun, (), run, lambda result: opened(result, name), name)
    return found[0]


def _shapes_inside(trace: Trace, fun: Function, args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> Any:
    given = placeholder_types(trace, (args, kwargs), name, lambda x: type(x) in (int, bool, Dim))
    with taken_out(trace, name):
        values = [trace.placeholder(leaf.operand.type) for leaf in given.leaves]
        variables = [
            leaf.variable(trace, x, f"argument of {name}") for leaf, x in zip(given.leaves, values, strict=True)
        ]
        positional, named = given.close(variables)
        with bodies(trace, fun) as (body,):
            results = open_tree(trace, body(*positional, **named), f"{name}: the result")
        return results.close([_shape_of(trace, leaf, name) for leaf in results.leaves])


def _shape_of(trace: Trace, leaf: Leaf, name: str) -> ShapeDtypeStruct:
    type_ = leaf.operand.type
    sizes: list[Any] = [trace.hint(n) if trace.is_once else make_dim(trace, n) for n in type_.shape]
    if any(is_runtime(n) for n in type_.shape):
        raise ShapeError(
            f"{name}: result{leaf.path} has a size that depends on elements; sizes known before are "
            f"needed{at(user_line())}"
        )
    return ShapeDtypeStruct(tuple(sizes), type_.dtype)


def make_program(
    fun: Function, static_argnums: int | Sequence[int] = (), return_shape: bool = False
) -> Callable[..., Any]:
    """A function that gives the program that ``tn.jit(fun)`` runs for its arguments, before any pass; it prints.

    Arguments may be ``tn.ShapeDtypeStruct``. static_argnums as in ``tn.jit``. return_shape: a pair of the program and
    what ``tn.eval_shape`` gives."""
    from tenferro.jit import jit

    jitted = jit(fun, static_argnums=static_argnums)

    def program_of(*args: Any, **kwargs: Any) -> Any:
        program: SemanticProgram = jitted.trace(*args, **kwargs)
        return (program, eval_shape(fun, *args, **kwargs)) if return_shape else program

    program_of.__name__ = f"make_program({function_name(fun)})"
    return program_of


def placeholder_types(
    trace: Trace, tree: Any, name: str, passes: Callable[[Any], bool] = lambda x: False
) -> Opened:  # fmt: skip
    """A pytree of arrays or of ``ShapeDtypeStruct`` and their like, as leaves of their types that hold nothing.
    ``passes``: leaves that stay what they are."""
    values, treedef = opened(tree, f"{name}: the arguments")
    names = paths(treedef)
    places, found = [], []
    for k, x in enumerate(values):
        if isinstance(x, ShapeDtypeStruct) or (not is_numeric(x) and hasattr(x, "shape") and hasattr(x, "dtype")):
            shape: list[Extent] = []
            for n in x.shape:
                extent = as_extent(n)
                assert extent is not None
                shape.append(extent)
            type_ = ArrayType(check_dtype(np.dtype(x.dtype), name), tuple(shape))
            found.append(Leaf(Value(-1, type_), False, False, names[k]))
            places.append(k)
        elif type(x) is not TracedArray and (isinstance(x, np.ndarray) or is_tenferro_array(x)):
            type_ = ArrayType(check_dtype(np.dtype(x.dtype), name), tuple(x.shape))
            found.append(Leaf(Value(-1, type_), False, getattr(x, "_scalar", False), names[k]))
            places.append(k)
        elif is_numeric(x) and not passes(x):
            leaf = leaf_of(trace, x, name, names[k])
            type_ = ArrayType(leaf.operand.type.dtype, leaf.operand.type.shape)
            found.append(Leaf(Value(-1, type_), leaf.weak, leaf.scalar, names[k]))
            places.append(k)
    return Opened(treedef, tuple(values), tuple(places), tuple(found))
