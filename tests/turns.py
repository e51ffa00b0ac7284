"""Products of lists in parts: combinations take turns, so that the entries of any two of three lists still meet.

``ALL_TURNS=1`` in the environment runs every combination."""

from __future__ import annotations

import os

ALL = os.environ.get("ALL_TURNS") == "1"


def is_due(*places: int, of: int = 2) -> bool:
    """Whether the entries at these places of their lists are tested together: one combination of ``of`` is."""
    return ALL or sum(places) % of == 0
