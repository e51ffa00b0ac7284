"""Kernels of regions without reductions: a thread takes one element, or a vector of neighbours.

In: a Region and a CudaVariant of schedule *all*. Out: the text of one function, entry ``all``. With ``vector`` the
accesses that are contiguous along the row move 2 to 16 bytes at a time; everything else is done element by element.
"""

from __future__ import annotations

from dataclasses import replace

from tenferro.engines.cpu.elements import component
from tenferro.engines.cuda.body import Body, Spot
from tenferro.engines.cuda.elements import POINTER, Value, memory_type, parts
from tenferro.engines.cuda.params import ITEMS, LENGTH
from tenferro.lowering.region import Gather, Load, Uniform


def all_kernel(body: Body) -> None:
    """The statements of entry ``all``: ``ITEMS`` elements in all."""
    code, index = body.code, body.index
    vector = max(1, body.variant.vector)
    code.do(f"const {index} e = (({index})blockIdx.x * blockDim.x + threadIdx.x) * {vector};")
    code.do(f"const {index} total = ({index}){body.at(ITEMS)};")
    code.do("if (e >= total) return;")
    spot = _spot(body)
    if body.variant.vector:
        _vector(body, spot)
        return
    values: dict[int, Value] = {}
    for k in range(len(body.region.nodes)):
        values[k] = body.node(k, values, spot)
    for s, store in enumerate(body.region.stores):
        body.store(s, values[store.node], spot)


def _spot(body: Body) -> Spot:
    code, index = body.code, body.index
    row, element = "0", "e"
    if body.variant.loops.outer_rank:
        length = f"({index}){body.at(LENGTH)}"
        row = code.let(index, body.divide("e", -1, length), "row")
        element = code.let(index, f"e - {row} * {length}", "i")
    outer = body.outer_indices(row)
    return Spot(outer, body.row_indices(element), element, body.bases(outer), "(long long)e")


def _vector(body: Body, spot: Spot) -> None:
    """``vector`` elements. Where there is one loop, the last thread may have fewer of them."""
    code, vector = body.code, body.variant.vector
    loops = body.variant.loops
    ends = loops.outer_rank == 0 and loops.row_rank == 1
    if ends:
        code.do(f"const int left = total - e < {vector} ? (int)(total - e) : {vector};")
    arrays = {a: f"x{a}" for a in range(len(body.keys)) if _is_array(body, a)}
    for a, name in arrays.items():
        dtype = body.dtype(a)
        count = vector * parts(dtype)
        code.do(f"__align__(16) {memory_type(component(dtype))} {name}[{count}]{' = {}' if ends else ''};")
        if body.keys[a][0] == "node":
            _move(body, a, name, spot, ends, load=True)
    fixed = _fixed(body, spot)
    code.do("#pragma unroll")
    with code.block(f"for (int k = 0; k < {vector}; ++k)"):
        row = [*spot.row[:-1], code.let(body.index, f"{spot.row[-1]} + k", "i")]
        element = code.let(body.index, f"{spot.element} + k", "i")
        active = "k < left" if ends else ""
        here = replace(
            spot, row=row, element=element, number="(long long)e + k", active=active, arrays=arrays, lane="k"
        )
        values = dict(fixed)
        for k in range(len(body.region.nodes)):
            if k not in values:
                values[k] = body.node(k, values, here)
        for s, store in enumerate(body.region.stores):
            body.store(s, values[store.node], here)
    for a, name in arrays.items():
        if body.keys[a][0] == "store":
            _move(body, a, name, spot, ends, load=False)


def _is_array(body: Body, a: int) -> bool:
    """Whether an access moves whole vectors: neighbours in memory, all of which exist."""
    kind, k = body.keys[a]
    node = body.region.nodes[k]
    special = kind == "node" and (isinstance(node, Gather) or (isinstance(node, Load) and bool(node.windows)))
    return body.variant.loops.kinds[a] == "unit" and not special


def _fixed(body: Body, spot: Spot) -> dict[int, Value]:
    """Values that all elements of the vector share."""
    found: dict[int, Value] = {}
    for k, node in enumerate(body.region.nodes):
        if isinstance(node, Uniform):
            found[k] = body.uniform(k, node)
        elif isinstance(node, Load) and not node.windows:
            if body.variant.loops.kinds[body.keys.index(("node", k))] == "uniform":
                found[k] = body.node(k, found, spot)
    return found


def _move(body: Body, a: int, name: str, spot: Spot, ends: bool, load: bool) -> None:
    """Between memory and the thread's array."""
    code, dtype = body.code, body.dtype(a)
    size = body.variant.vector * dtype.itemsize
    place = code.let(POINTER, body.address(a, spot, dtype.itemsize), "at")
    kind, real = f"tn_bytes<{size}>::type", memory_type(component(dtype))
    inside, outside = f"*({kind}*){name}", f"*({'const ' if load else ''}{kind}*){place}"
    whole = f"{inside} = {outside};" if load else f"{outside} = {inside};"
    if not ends:
        code.do(whole)
        return
    code.do(f"if (left == {body.variant.vector}) {whole}")
    count = f"left * {parts(dtype)}"
    pair = (f"{name}[k]", f"(({'const ' if load else ''}{real}*){place})[k]")
    target, source = pair if load else pair[::-1]
    code.do(f"else for (int k = 0; k < {count}; ++k) {target} = {source};")
