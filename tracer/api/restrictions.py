"""What NumPy's functions are not asked for here: functions traced anew for each size, and arguments that are refused.

In: nothing. Out: tables for the page of operations; tests run each refused call.
"""

from __future__ import annotations

from tenferro.tracer.api import fixed

PER_SIZE = fixed.PER_SIZE | {"array_split", "polymul", "polyval", "unstack"}
"""Functions that need sizes as numbers: NumPy tells the shape of the result, or Python loops over parts."""

REFUSED: dict[str, str] = {
    "add and every other ufunc": "`signature=`; `where=` without `out=`, which leaves elements undefined",
    "add.reduceat": "all ufuncs' `reduceat`; `accumulate` of ufuncs that are not listed with it",
    "arange": "bounds that are traced floats (sizes and int arguments are fine)",
    "astype": "complex to real: `x.real` says what is meant",
    "divmod, modf": "`out=`",
    "ediff1d": "`to_begin=` and `to_end=` that are arrays",
    "histogram": "`bins=` by name, complex weights",
    "insert": "traced places",
    "interp": "`left=`, `right=` and `period=` that are traced",
    "linspace": "bounds that are arrays",
    "matmul, vecdot": "`axes=`, `axis=`, `keepdims=`",
    "mean, var, std": "`dtype=` of integers",
    "nanmedian": "`out=`",
    "pad": "a function as `mode`",
    "partition, argpartition": "`kth` that is an array (ints and lists of them are fine)",
    "percentile, quantile, nanpercentile, nanquantile": "a traced `q`, `weights=`",
    "polyfit": "`full=`, `w=`, `cov=`",
    "ravel, reshape": '`order=` "A" and "K" of arguments and views, whose memory may lie either way',
    "repeat": "`repeats` for each element that are traced",
    "sliding_window_view": "`writeable=True`: windows overlap",
    "sort, argsort": "`order=`, which names fields of structured arrays",
    "unique": "`axis=`",
    "zeros, ones, empty, full, copy": '`order="F"`: results are in C order',
}
"""Functions → what is refused of what NumPy takes."""
