"""Special functions by SciPy's names: ``tn.special.expit``, ``erf``, ``gammaln``, ``logsumexp``, …."""

from __future__ import annotations

from tenferro.listing import listing as _listing
from tenferro.publishing import public as _public
from tenferro.tracer.api.special import SPECIAL as _SPECIAL

globals().update((name, _public(__name__, name, record)) for name, record in _SPECIAL.items())
__dir__, __getattr__ = _listing(__name__, tuple(_SPECIAL))
