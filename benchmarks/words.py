"""What transformed functions are written in: an array namespace and the transformations of one library.

A case that needs them is written once, as ``written(words) → function``; tenferro and JAX each bring their words.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Words:
    """``np``: NumPy's functions on the library's arrays. ``random``: numbers by key."""

    np: Any
    random: Any
    grad: Callable[..., Any]
    vmap: Callable[..., Any]
    scan: Callable[..., Any]
    while_loop: Callable[..., Any]
    fori_loop: Callable[..., Any]


def tenferro_words() -> Words:
    """NumPy itself, under ``tn.jit``."""
    import numpy as np

    import tenferro as tn

    return Words(np, tn.random, tn.grad, tn.vmap, tn.lax.scan, tn.lax.while_loop, tn.lax.fori_loop)


def jax_words() -> Words:
    """JAX's."""
    import jax
    import jax.numpy as jnp

    return Words(jnp, jax.random, jax.grad, jax.vmap, jax.lax.scan, jax.lax.while_loop, jax.lax.fori_loop)
