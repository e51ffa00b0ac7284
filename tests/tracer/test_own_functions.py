"""Functions of this package held by the user's: they are no state of the user's, what they hold may be."""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

import numpy as np
import pytest

import tenferro as tn
import tenferro.numpy as tnp
from tenferro.tracer.errors import MutationError


def test_a_function_of_the_package_in_a_variable() -> None:
    over, join = tn.tree.map, reduce
    f = tn.jit(lambda x: over(lambda v: v + 1, {"a": x, "b": (x, join(np.add, [x, x, x]))}))
    out = f(np.ones(2))
    assert out["a"].tolist() == [2, 2] and out["b"][1].tolist() == [4, 4]


def test_what_its_closure_holds_is_the_users() -> None:
    weights, seen = np.ones(2), []
    add = partial(tn.tree.map, lambda v: v * weights)
    f = tn.jit(lambda x: add([x]))
    assert f(np.ones(2))[0].tolist() == [1, 1]
    weights[:] = 3
    assert f(np.ones(2))[0].tolist() == [3, 3]
    note = partial(tn.tree.map, lambda v: seen.append(1) or tnp.exp(v))
    with pytest.raises(MutationError, match="seen went from 0 to 1"):
        tn.jit(lambda x: note(x))(np.ones(2))


def _held() -> Any:
    return tn.tree.leaves


def test_from_a_global() -> None:
    leaves = _held()
    assert tn.jit(lambda x: leaves({"a": x})[0] * 2)(np.ones(1)).tolist() == [2]
