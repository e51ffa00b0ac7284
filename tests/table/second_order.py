"""Calls of rows in, their derivatives to second order checked by ``check_grads``, all of one precision at once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np

import tenferro as tn
from tests.table.ordinary import Call

TOLERANCES = {"float64": (1e-5, 1e-5), "float32": (2e-2, 2e-2), "float16": (0.3, 0.125)}
"""Of differences, and their step, by the narrowest dtype: they lose half of its digits."""


def check(calls: Sequence[Call], only_reverse: bool = False) -> None:
    """Those of one precision in one program; where it fails, one by one. Forward and mixed modes in double precision:
    rules are the same for all dtypes, and reverse mode asks each of them."""
    groups: dict[str, list[Call]] = {}
    for call in calls:
        groups.setdefault(call.precision, []).append(call)
    for precision, group in groups.items():
        modes = ("fwd", "rev") if precision == "float64" and not only_reverse else ("rev",)
        try:
            _check(group, precision, modes)
        except AssertionError:
            for call in group:
                _check([call], precision, modes)
            raise


def _check(calls: Sequence[Call], precision: str, modes: tuple[str, ...]) -> None:
    tolerance, step = TOLERANCES[precision]
    counts = [len(call.arguments) for call in calls]

    @tn.jit
    def together(*arrays):
        given = iter(arrays)
        return [call.function(*islice(given, count)) for call, count in zip(calls, counts, strict=True)]

    arguments = [x for call in calls for x in call.arguments]
    try:
        with np.errstate(all="ignore"):
            tn.test_util.check_grads(together, arguments, 2, modes, tolerance, tolerance, step)
    except AssertionError as error:
        raise AssertionError(f"{'; '.join(map(str, calls))}: {error}") from None
