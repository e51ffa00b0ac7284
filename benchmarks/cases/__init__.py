"""The registry: every case by name, in the order in which they run."""

from __future__ import annotations

from benchmarks.case import Case
from benchmarks.cases import derivatives, layout, loops, pointwise, processes, products, random, reductions, selection

CASES: dict[str, Case] = {
    case.name: case
    for family in (pointwise, reductions, layout, products, selection, derivatives, loops, random, processes)
    for case in family.CASES
}
