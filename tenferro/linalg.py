"""Linear algebra by NumPy's names, and what SciPy and JAX have beside them: ``tn.linalg.cholesky``, ``solve``, ….

Arrays of any kind go in: traced ones inside jitted functions, ``tn.Array`` and ndarray outside (type in, type out).
``numpy.linalg``'s own functions trace as well.
"""

from __future__ import annotations

from tenferro.listing import listing as _listing
from tenferro.publishing import public as _public
from tenferro.tracer.api.matrices import OF_SCIPY as _OF_SCIPY
from tenferro.tracer.api.registry import LINALG as _LINALG

_ALL = {**_LINALG, **_OF_SCIPY}
globals().update((name, _public(__name__, name, record)) for name, record in _ALL.items())


def _of_symmetric(name: str) -> str:
    """What stands for ``eig`` and ``eigvals``, whose results are complex or real as the elements have it."""
    is_known = name in ("eig", "eigvals")
    return f"; tenferro.linalg.{name}h of a symmetric or Hermitian matrix is there" if is_known else ""


__dir__, __getattr__ = _listing(__name__, tuple(_ALL), _of_symmetric)
