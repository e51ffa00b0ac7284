"""Modules of many names list them, and say what is nearest to one that they have not."""

from __future__ import annotations

from types import ModuleType

import pytest

import tenferro.lax
import tenferro.numpy


@pytest.mark.parametrize("module", [tenferro.numpy, tenferro.lax])
def test_every_listed_name_is_there(module: ModuleType) -> None:
    names = dir(module)
    assert len(names) > 30 and names == sorted(names)
    assert not [n for n in names if n.startswith("_") or not hasattr(module, n)]
    names.clear()
    assert dir(module)


@pytest.mark.parametrize(
    ("module", "name", "said"),
    [
        (tenferro.lax, "dynamic_slise", "tenferro.lax has no 'dynamic_slise'; dynamic_slice is the nearest name"),
        (tenferro.lax, "nothing_like_it", "tenferro.lax has no 'nothing_like_it'"),
        (tenferro.numpy, "concatonate", "tenferro.numpy has no 'concatonate'; numpy.concatenate is the nearest"),
        (tenferro.numpy, "histogramdd", "tenferro.numpy has no 'histogramdd'; numpy.add.at(counts, (i, j, k), 1)"),
        (tenferro.lax, "__path__", "module 'tenferro.lax' has no attribute '__path__'"),
    ],
)
def test_a_missing_name(module: ModuleType, name: str, said: str) -> None:
    with pytest.raises(AttributeError) as raised:
        getattr(module, name)
    assert str(raised.value).startswith(said)
