"""From a region to CUDA C: a Region and a CudaVariant go in, a ``KernelText`` comes out.

The text depends on nothing else: equal arguments give equal texts, and equal texts equal names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

from tenferro.engines.cuda.body import Body
from tenferro.engines.cuda.builder import Parts
from tenferro.engines.cuda.code import Code
from tenferro.engines.cuda.params import CudaParams, CudaVariant
from tenferro.engines.cuda.pointwise import all_kernel
from tenferro.engines.cuda.prelude import KernelText, takes_value
from tenferro.engines.cuda.rows import RowKernel, max_threads
from tenferro.lowering.region import Region

NAME = "tn_kernel_name"


def kernel_text(region: Region, variant: CudaVariant, axis_loops: Mapping[int, int]) -> KernelText:
    """``axis_loops``: space axis → loop, of the Layout that the variant was made for."""
    parts = Parts()
    words = CudaParams(region, variant).words

    def function(entry: str, write: Callable[[Body], None]) -> str:
        body = Body(region, variant, axis_loops, parts, Code())
        write(body)
        bound = f"__launch_bounds__({max_threads(region, variant)})"
        kind = f"const tn_words<{words}> P" if takes_value(words) else "const long long* __restrict__ P"
        return body.code.function(f'extern "C" __global__ void {bound} {NAME}_{entry}({kind})')

    if variant.schedule == "all":
        functions = {"all": function("all", all_kernel)}
    else:
        functions = {
            entry: function(entry, lambda body, write=write: write(RowKernel(body)))  # type: ignore[misc]
            for entry, write in RowKernel.entries(region, variant).items()
        }
    text = "".join(functions.values())
    digest = hashlib.sha256("".join([*parts.tables.values(), *parts.functions.values(), text]).encode()).hexdigest()[
        :16
    ]
    names = {entry: f"k{digest}_{entry}" for entry in functions}
    return KernelText(names, words, {**parts.tables, **parts.functions}, text.replace(NAME, f"k{digest}"))
