"""Where a block's temporaries lie: never in memory that somebody else has at the time, and in little of it."""

from __future__ import annotations

import numpy as np
import pytest

from tenferro.engines.cpu.arena import ALIGNMENT, ARENA, NEVER, Layout, Made, lay_out

BYTE = np.dtype(np.uint8)


def made(*sizes_and_spans: tuple[int, int, int]) -> list[Made]:
    return [Made(k, (n,), BYTE, k, first, last) for k, (n, first, last) in enumerate(sizes_and_spans)]


def total(layout: Layout) -> int:
    """Bytes of what the block makes."""
    return max(layout.arena, 0) + sum(m.size for m in layout.lasting)


def check(items: list[Made], dead: list[tuple[int, int, int]], layout: Layout) -> None:
    """Every temporary lies within its host, aligned, and apart from what lives there during its own steps."""
    capacity = {m.position: m.size for m in items} | {position: size for position, size, _ in dead}
    capacity[ARENA] = layout.arena
    lasting = [m for m in items if m.last == NEVER]
    assert list(layout.lasting) == lasting
    assert set(layout.places) == {m.position for m in items if m.last != NEVER}
    taken = [(m.position, 0, m.size, m.first, NEVER) for m in lasting]
    taken += [(position, 0, size, -1, last) for position, size, last in dead]
    for m in items:
        if m.last == NEVER:
            continue
        home, offset = layout.places[m.position]
        assert offset % ALIGNMENT == 0 and 0 <= offset and offset + m.size <= capacity[home]
        taken.append((home, offset, m.size, m.first, m.last))
    for k, (home, offset, size, first, last) in enumerate(taken):
        for other, start, more, begin, end in taken[:k]:
            apart = home != other or offset + size <= start or start + more <= offset
            assert apart or last < begin or end < first or not size or not more


def test_a_chain_takes_two_places() -> None:
    items = made(*[(640, k, k + 1) for k in range(50)])
    layout = lay_out(items, [])
    check(items, [], layout)
    assert layout.arena == 1280 and not layout.lasting


def test_temporaries_lie_in_a_result_until_it_is_written() -> None:
    items = made((640, 0, 1), (640, 1, 2), (640, 2, NEVER))
    layout = lay_out(items, [])
    check(items, [], layout)
    assert total(layout) == 1280 and layout.places[0] == (2, 0)


def test_temporaries_lie_in_what_has_died() -> None:
    items = made((640, 4, 5), (512, 3, 5))
    dead = [(9, 1024, 2)]
    layout = lay_out(items, dead)
    check(items, dead, layout)
    assert layout.arena == 512 and layout.places == {0: (9, 0), 1: (ARENA, 0)}
    late = lay_out(items, [(9, 1024, 3)])
    assert late.places == {0: (9, 0), 1: (ARENA, 0)}
    assert lay_out(items, [(9, 1024, 4)]).places == {0: (ARENA, 0), 1: (ARENA, 640)}


def test_smaller_ones_share_the_place_of_a_larger_one() -> None:
    items = made((6400, 0, 1), (640, 2, 3), (640, 2, 3))
    layout = lay_out(items, [])
    check(items, [], layout)
    assert layout.arena == 6400 and layout.tag == 0


def test_arrays_without_elements_and_nothing_at_all() -> None:
    items = made((0, 0, 1), (0, 0, NEVER))
    layout = lay_out(items, [])
    check(items, [], layout)
    assert lay_out([], []) == Layout((), {}, -1, 0)
    alone = lay_out(made((0, 0, 1)), [])
    assert alone.arena == 0 and alone.places == {0: (ARENA, 0)}


@pytest.mark.parametrize("seed", range(60))
def test_any_lifetimes(seed: int) -> None:
    random = np.random.default_rng(seed)
    count = int(random.integers(1, 40))
    firsts = np.sort(random.integers(0, 30, count))
    sizes = random.choice([0, 8, 64, 640, 704, 6400], count)
    lasts = [NEVER if random.random() < 0.2 else int(f + random.integers(0, 6)) for f in firsts]
    items = made(*[(int(n), int(f), last) for n, f, last in zip(sizes, firsts, lasts, strict=True)])
    dead = [(1000 + k, int(random.choice([64, 640, 6400])), int(random.integers(0, 20))) for k in range(seed % 4)]
    layout = lay_out(items, dead)
    check(items, dead, layout)
    rounded = sum(-(-m.size // ALIGNMENT) * ALIGNMENT for m in items)
    assert total(layout) <= rounded
