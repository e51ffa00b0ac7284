"""Meshes across processes: a communicator of mpi4py in, a ``Mesh`` whose collectives are messages between ranks out.

Every rank runs the same function on its own shard. Collectives are extension operations with effects, so that all ranks
meet in one order. What is added is added in the order of the ranks: each rank gets everyone's part of its share, adds
them, and hands the share round; results have the bits of the same mesh in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import field
from itertools import combinations
from math import prod
from typing import Any

import numpy as np

from tenferro import mpi_rules
from tenferro.mesh import Mesh, Names, names_of
from tenferro.runtime import ExtensionModule, Family, Lent, default_runtime
from tenferro.tracer.errors import ShapeError, TraceError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.op import Op
from tenferro.tracer.ops import collectives
from tenferro.tracer.ops.collectives import combined, pieces_of
from tenferro.tracer.ops.columns import linear
from tenferro.tracer.program import ArrayType, Params
from tenferro.tracer.records import dataclass
from tenferro.tracer.spread import Grid

Array = np.ndarray[Any, Any]
Comm = Any  # mpi4py's classes are known where it is installed


def _mpi() -> Any:
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise ImportError(
            f"mpi_mesh: mpi4py cannot be imported ({error}); python -m pip install mpi4py mpich is needed, and "
            f"mpiexec -n 2 python -m mpi4py script.py to start{at(user_line())}"
        ) from None
    return MPI


def mpi_mesh(
    axis_names: str | Sequence[str] = "i", shape: Sequence[int] | None = None, *, whole: bool = True, comm: Comm = None
) -> Mesh:
    """A mesh of the ranks of an MPI program, for ``tn.shard_map``; every rank makes it, and calls what uses it.

    axis_names: one name, or one for each number in ``shape``, whose product is the number of ranks.
    whole: arguments and results are whole arrays, the same in every rank: each cuts its shard, results are gathered.
    Otherwise they are the rank's own shards, which are neither cut nor gathered; what the specs say still counts for
    what must be the same everywhere.
    comm: an mpi4py communicator; all ranks by default.

    ImportError with the command that helps where mpi4py is missing; ShapeError for a shape that does not fit."""
    mpi = _mpi()
    comm = mpi.COMM_WORLD if comm is None else comm
    names = names_of(axis_names, "mpi_mesh: axis_names")
    sizes = (comm.Get_size(),) if shape is None else tuple(int(n) for n in shape)
    if len(sizes) != len(names) or prod(sizes) != comm.Get_size():
        raise ShapeError(
            f"mpi_mesh: axis_names {names} and shape {sizes} for {comm.Get_size()} ranks; a size for each name, with "
            f"the ranks as their product, is needed{at(user_line())}"
        )
    runtime = default_runtime()
    if MODULE not in runtime.snapshot.families.modules:
        runtime.reconfigure(lambda configuration: configuration.install_extension(MODULE))
    grid = Grid(names, sizes, ("",), (comm.Get_rank(),), is_whole=whole)
    channel = _Channel(grid, comm)
    return Mesh.of(Grid(names, sizes, ("",), (comm.Get_rank(),), channel.remote, whole))


@dataclass(eq=False)
class _Channel:
    """The communicators of a mesh: for each set of axes one of the ranks that differ along these only, in the order of
    the mesh. Making them is a meeting of all ranks, and so is done at once."""

    grid: Grid
    comm: Comm
    _groups: dict[frozenset[str], Comm] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rank = self.grid.positions[0]
        for count in range(1, len(self.grid.names) + 1):
            for names in combinations(self.grid.names, count):
                others = [n for n in self.grid.names if n not in names]
                split = self.comm.Split(self.grid.index(rank, others), self.grid.index(rank, names))
                self._groups[frozenset(names)] = split

    def group(self, names: Names) -> tuple[Comm, list[int]]:
        """The communicator over these axes, and the rank there of each position along them as they are named."""
        mesh_order = [n for n in self.grid.names if n in names]
        order = [self.grid.index(p, mesh_order) for p in self.grid.groups(names)[0]]
        return self._groups[frozenset(names)], order

    def remote(
        self, op: Op | str, names: Names, params: dict[str, Hashable]
    ) -> tuple[Op, dict[str, Hashable]]:  # fmt: skip
        """What ``Grid`` asks for: the operation of one operand that meets the other ranks."""
        name = op if isinstance(op, str) else op.name
        return FAMILIES[name].op, {"channel": self, "names": names, **params}

    def __repr__(self) -> str:
        return f"ranks {'x'.join(map(str, self.grid.sizes))}"


@dataclass(frozen=True)
class _Group:
    """Ranks that meet, in the order of a collective: ``ranks[k]`` is the k-th one's number in ``comm``."""

    comm: Comm
    ranks: list[int]

    @property
    def own(self) -> int:
        return self.ranks.index(self.comm.Get_rank())

    def exchange(self, pieces: Sequence[Array]) -> list[Array]:
        """Piece k goes to the k-th rank; what each sent here, in order. All pieces for one rank have one size."""
        arrays = [np.ascontiguousarray(pieces[k]) for k in self._inverse]
        mine = pieces[self.own]
        got = np.empty((len(arrays), *mine.shape), mine.dtype)
        sent = np.concatenate([a.reshape(-1) for a in arrays])
        self.comm.Alltoallv(_message(sent, [a.nbytes for a in arrays]), _message(got, [mine.nbytes] * len(arrays)))
        return [got[r] for r in self.ranks]

    def gather(self, x: Array, sizes: Sequence[int]) -> Array:
        """Everyone's one-dimensional arrays behind one another; ``sizes`` are their numbers of elements, in order."""
        got = np.empty(sum(sizes), x.dtype)
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(int)
        counts = [sizes[k] * x.itemsize for k in self._inverse]
        places = [int(starts[k]) * x.itemsize for k in self._inverse]
        self.comm.Allgatherv([np.ascontiguousarray(x), _mpi().BYTE], [got, (counts, places), _mpi().BYTE])
        return got

    @property
    def _inverse(self) -> list[int]:
        """For each number in ``comm`` its place in the order."""
        return [int(k) for k in np.argsort(self.ranks)]

    def check(self, x: Array) -> None:
        """ShapeError, in every rank, where their arrays are not of one shape."""
        shapes = self.comm.allgather(x.shape)
        if any(s != x.shape for s in shapes):
            raise ShapeError(f"collective: arrays of shapes {shapes}; one shape in all ranks is needed")


def _message(buffer: Array, counts: Sequence[int]) -> list[Any]:
    places = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(int).tolist()
    return [buffer, (list(counts), places), _mpi().BYTE]


def _all_reduce(group: _Group, x: Array, reduction: str) -> Array:
    count = len(group.ranks)
    shares = np.array_split(x.reshape(-1), count)
    own = combined(group.exchange(shares), reduction)
    return group.gather(own, [s.size for s in shares]).reshape(x.shape)


def _all_gather(group: _Group, x: Array, axis: int, tiled: bool) -> Array:
    got = group.gather(x.reshape(-1), [x.size] * len(group.ranks)).reshape(len(group.ranks), *x.shape)
    return np.concatenate(list(got), axis) if tiled else np.stack(list(got), axis)


def _reduce_scatter(group: _Group, x: Array, reduction: str, axis: int, tiled: bool) -> Array:
    return combined(group.exchange(pieces_of(x, len(group.ranks), axis, tiled)), reduction)


def _broadcast(group: _Group, x: Array, root: int) -> Array:
    out = np.array(x, order="C")
    group.comm.Bcast([out, _mpi().BYTE], root=group.ranks[root])
    return out


def _permute(group: _Group, x: Array, pairs: tuple[tuple[int, int], ...]) -> Array:
    out, sent = np.zeros(x.shape, x.dtype), np.ascontiguousarray(x)
    requests = []
    for source, destination in pairs:
        if destination == group.own:
            requests.append(group.comm.Irecv([out, _mpi().BYTE], group.ranks[source]))
        if source == group.own:
            requests.append(group.comm.Isend([sent, _mpi().BYTE], group.ranks[destination]))
    _mpi().Request.Waitall(requests)
    return out


def _family(row: Op, execute: Callable[..., Array]) -> tuple[Family, Callable[..., Array]]:
    """The row as an operation of one operand, and what carries it out."""

    def infer(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
        own = {k: v for k, v in params.items() if k not in ("channel", "names")}
        count = params["channel"].grid.size(params["names"])
        return row.infer([types[0]] * count, Params(places=("",) * count, **own))[:1]

    def reference(x: Array, **params: Any) -> Array:
        raise TraceError(
            f"{row.name}: between processes, whose results are known only when the program runs{at(user_line())}"
        )

    def executor(lent: Lent, x: Array, *, channel: _Channel, names: Names, **params: Any) -> Array:
        group = _Group(*channel.group(names))
        x = np.asarray(x)
        if not channel.grid.is_whole:
            group.check(x)
        return execute(group, x, **params)

    rules = (mpi_rules.jvp(_row), mpi_rules.transpose(_row), mpi_rules.batch)
    return Family(f"mpi.{row.name}.v1", infer, reference, True, *rules), executor


def _row(name: str) -> Op:
    return FAMILIES[name].op


_MADE = {
    row.name: _family(row, execute)
    for row, execute in (
        (collectives.all_reduce, _all_reduce),
        (collectives.all_gather, _all_gather),
        (collectives.reduce_scatter, _reduce_scatter),
        (collectives.broadcast, _broadcast),
        (collectives.permute, _permute),
    )
}


def _edge(name: str) -> tuple[Family, Callable[..., Array]]:
    """What hands an array on where it enters or leaves a function that is differentiated."""

    def infer(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
        return (ArrayType(types[0].dtype, types[0].shape),)

    def executor(lent: Lent, x: Array, *, channel: _Channel, names: Names) -> Array:
        return np.array(x)

    rules = (linear(), mpi_rules.transpose(_row), mpi_rules.batch)
    return Family(f"mpi.{name}.v1", infer, lambda x, channel, names: np.array(x), False, *rules), executor


_MADE |= {name: _edge(name) for name in ("entered", "left")}
FAMILIES = {name: family for name, (family, _) in _MADE.items()}
MODULE = ExtensionModule(
    "mpi",
    tuple(FAMILIES.values()),
    {(family.name, "cpu"): executor for family, executor in _MADE.values()},
    allow_reference=False,
)
