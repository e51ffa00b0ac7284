"""Functions of networks by JAX's names: ``tn.nn.relu``, ``softmax``, ``one_hot``, …. There are no layers and no
optimisers here; the examples show them as functions.

Arrays of any kind go in: traced ones inside jitted functions, ``tn.Array`` and ndarray outside (type in, type out).
"""

from __future__ import annotations

from tenferro.listing import listing as _listing
from tenferro.nn import initializers as initializers
from tenferro.publishing import public as _public
from tenferro.tracer.api.neural import NN as _NN

globals().update((name, _public(__name__, name, record)) for name, record in _NN.items())
__dir__, __getattr__ = _listing(__name__, (*_NN, "initializers"))
