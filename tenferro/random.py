"""Random numbers by key, under JAX's names: ``tn.random.key``, ``tn.random.normal``, ….

A key is a uint32 array of shape (2,); equal keys give equal numbers, on every engine, at any thread count, traced or
not, and ``split`` makes new ones. Keys of any kind go in: traced ones inside jitted functions, ``tn.Array`` and
ndarray outside (type in, type out); ``key(seed)`` of a Python integer makes a ``tn.Array``. Floats are float64 and
integers int64 unless ``dtype`` says otherwise.
"""

from __future__ import annotations

from tenferro.listing import listing as _listing
from tenferro.publishing import public as _public
from tenferro.tracer.api.random_registry import RANDOM as _RANDOM

_SIZES = frozenset({"shape", "num", "d", "m"})
"""Parameters of any function that hold sizes."""

globals().update((name, _public(__name__, name, record, _SIZES)) for name, record in _RANDOM.items())
__dir__, __getattr__ = _listing(__name__, tuple(_RANDOM))
