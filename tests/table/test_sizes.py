"""1,000 random sizes, dealt out to the rows: one program for all of them gives the bits of a program made for each.

``python tools/fuzz.py --sizes`` runs 1,000 for every row."""

from __future__ import annotations

import pytest

from tests.samples import SAMPLES
from tests.table.sizes import check_sizes, size_pairs

SIZES_PER_ROW = -(-1000 // len(SAMPLES))


@pytest.mark.parametrize("name", SAMPLES)
def test_one_program_serves_every_size(name: str) -> None:
    wrong = check_sizes(name, size_pairs(SAMPLES[name].sized.minimum, SIZES_PER_ROW, seed=1))
    assert not wrong, "\n".join(wrong[:10])
