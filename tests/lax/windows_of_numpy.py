"""XLA's gather and scatter as loops over NumPy arrays, from their definition, window by window."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np

Array = np.ndarray[Any, Any]
Outside = Literal["raise", "clip", "drop"]


def _windows(
    shape: Sequence[int], indices: Array, sizes: Sequence[int], starts_of: Sequence[int], shared: dict[int, int],
    outside: Outside,
) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...] | None]]:  # fmt: skip
    """(index in the batch, box of the window): None for one that is not wholly inside and is to be dropped."""
    for place in np.ndindex(indices.shape[:-1]):
        starts = [0] * len(shape)
        for k, axis in enumerate(starts_of):
            starts[axis] = int(indices[place][k])
        for axis, other in shared.items():
            starts[axis] = place[other]
        inside = all(0 <= s <= n - w for s, n, w in zip(starts, shape, sizes, strict=True))
        if not inside and outside == "raise":
            raise IndexError(f"window at {starts}")
        if outside == "clip":
            starts = [min(max(s, 0), n - w) for s, n, w in zip(starts, shape, sizes, strict=True)]
            inside = True
        yield place, tuple(slice(s, s + w) for s, w in zip(starts, sizes, strict=True)) if inside else None


def gather(
    x: Array, indices: Array, numbers: Any, sizes: Sequence[int], outside: Outside = "raise", fill: Any = 0
) -> Array:
    dropped = sorted((*numbers.collapsed_slice_dims, *numbers.operand_batching_dims))
    inner = [n for a, n in enumerate(sizes) if a not in dropped]
    batch = indices.shape[:-1]
    out = np.full((*batch, *inner), fill, x.dtype)
    shared = dict(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True))
    for place, box in _windows(x.shape, indices, sizes, numbers.start_index_map, shared, outside):
        if box is not None:
            out[place] = x[box].reshape(inner)
    rank = len(batch) + len(inner)
    outer = [a for a in range(rank) if a not in numbers.offset_dims]
    return np.moveaxis(out, range(rank), (*outer, *numbers.offset_dims)) if rank else out


def scatter(
    combine: Callable[[Any, Any], Any],
    x: Array,
    indices: Array,
    updates: Array,
    numbers: Any,
    outside: Outside = "raise",
) -> Array:
    dropped = sorted((*numbers.inserted_window_dims, *numbers.operand_batching_dims))
    outer = [a for a in range(updates.ndim) if a not in numbers.update_window_dims]
    updates = np.transpose(updates, (*outer, *numbers.update_window_dims))
    sizes = list(updates.shape[len(outer) :])
    for axis in dropped:
        sizes.insert(axis, 1)
    out = x.copy()
    shared = dict(zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True))
    for place, box in _windows(x.shape, indices, sizes, numbers.scatter_dims_to_operand_dims, shared, outside):
        if box is not None:
            out[box] = combine(out[box], updates[place].reshape(sizes))
    return out


def drawn(rng: np.random.Generator, batching: bool) -> tuple[tuple[int, ...], Array, dict[str, Any], tuple[int, ...]]:
    """A shape, starts of which some windows are not inside, dimension numbers by the names that gather and scatter
    share, and sizes of windows."""
    rank = int(rng.integers(1, 5))
    shape = tuple(rng.integers(1, 6, rank).tolist())
    axes = rng.permutation(rank).tolist()
    shared = axes[: int(rng.integers(0, 2))] if batching else []
    rest = axes[len(shared) :]
    starts_of = rest[: int(rng.integers(0, len(rest) + 1))]
    left_out = sorted(a for a in rest if rng.random() < 0.4)
    sizes = tuple(1 if a in (*left_out, *shared) else int(rng.integers(1, shape[a] + 1)) for a in range(rank))
    batch = [shape[a] for a in shared] + rng.integers(1, 4, int(rng.integers(0, 3))).tolist()
    order = rng.permutation(len(batch)).tolist()
    batch = [batch[k] for k in order]
    indices = (
        np.stack([rng.integers(-2, shape[a] + 2, batch) for a in starts_of], -1)
        if starts_of
        else np.zeros((*batch, 0), np.int64)
    )
    windows = rank - len(left_out) - len(shared)
    places = sorted(rng.permutation(len(batch) + windows)[:windows].tolist())
    numbers = {
        "windows": tuple(places), "left_out": tuple(left_out), "starts": tuple(starts_of), "batching": tuple(shared),
        "indices_batching": tuple(order.index(k) for k in range(len(shared))),
    }  # fmt: skip
    return shape, indices, numbers, sizes


def inside(indices: Array, shape: Sequence[int], starts_of: Sequence[int], sizes: Sequence[int]) -> Array:
    """The starts brought to where every window is wholly inside."""
    high = np.array([shape[a] - sizes[a] for a in starts_of], np.int64)
    return np.clip(indices, 0, high)
