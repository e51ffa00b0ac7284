"""Keys: seeds and keys in, keys out; the block cipher's known answers; what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro import random
from tenferro.tracer.errors import TraceError
from tenferro.tracer.ops import OPS
from tests.lax.checking import agrees, refuses

KEY = np.array([0x13198A2E, 0x03707344], np.uint32)

# From the vectors that the authors publish with their code (Random123, kat_vectors): counter, key, block.
KNOWN = (
    (0x00000000_00000000, (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
    (0xFFFFFFFF_FFFFFFFF, (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    (0x243F6A88_85A308D3, (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
)


@pytest.mark.parametrize(("counter", "key", "block"), KNOWN)
def test_known_answers(counter: int, key: tuple[int, int], block: tuple[int, int]) -> None:
    """Counters of more than 32 bits too."""
    numbers, wide = np.full(37, counter, np.uint64), np.dtype(np.uint64)
    found = OPS["threefry"].reference(*map(np.uint32, key), numbers, dtype=wide)
    np.testing.assert_array_equal(found, block[0] << 32 | block[1])
    words = np.array(key, np.uint32)
    # The same as the program makes it of the key of an integer.
    folded = random.fold_in(words, np.uint32(counter & 0xFFFFFFFF))
    if not counter >> 32:
        np.testing.assert_array_equal(folded, np.array(block, np.uint32))


@pytest.mark.parametrize(
    ("seed", "words"),
    [
        (0, (0, 0)), (42, (0, 42)), (-1, (2**32 - 1, 2**32 - 1)), (2**32 + 5, (1, 5)), (-(2**40), (2**32 - 256, 0)),
        (2**63 - 1, (2**31 - 1, 2**32 - 1)), (2**63 + 3, (2**31, 3)), (np.int32(-1), (0, 2**32 - 1)),
        (np.uint32(4_000_000_000), (0, 4_000_000_000)), (np.int8(-2), (0, 2**32 - 2)),
    ],
)  # fmt: skip
def test_seeds(seed: Any, words: tuple[int, int]) -> None:
    """The upper and the lower 32 bits; narrow integers of NumPy have no upper ones."""
    for made in (random.key(seed), random.PRNGKey(seed), tn.jit(lambda: random.key(seed))()):
        assert made.dtype == np.uint32 and made.shape == (2,)
        assert tuple(np.asarray(made).tolist()) == words


def test_a_traced_seed_serves_all_seeds() -> None:
    made = tn.jit(lambda seed: random.key(seed))
    for seed in (0, 1, -1, 2**40, -(2**63)):
        np.testing.assert_array_equal(made(seed), random.key(seed))
    assert made.cache_info().compiles == 1


def test_keys_are_words() -> None:
    agrees(lambda k: random.key_data(k), KEY, KEY)
    agrees(lambda k: random.wrap_key_data(k, impl="threefry2x32"), KEY, KEY)
    agrees(lambda k: random.clone(k), KEY, KEY)
    several = np.arange(12, dtype=np.uint32).reshape(2, 3, 2)
    agrees(lambda k: random.wrap_key_data(k), several, several)
    copy = random.clone(KEY)
    assert not np.may_share_memory(copy, KEY)


@pytest.mark.parametrize("num", [0, 1, 2, 7, (3, 2), (0, 4), ()])
def test_split_is_the_block_of_each_number(num: Any) -> None:
    shape = num if isinstance(num, tuple) else (num,)
    numbers = np.arange(int(np.prod(shape)), dtype=np.uint64)
    blocks = OPS["threefry"].reference(KEY[0], KEY[1], numbers, dtype=np.dtype(np.uint64))
    wanted = np.stack([(blocks >> np.uint64(32)).astype(np.uint32), blocks.astype(np.uint32)], -1).reshape(*shape, 2)
    agrees(lambda k: random.split(k, num), wanted, KEY)


def test_keys_of_a_split_are_their_own() -> None:
    keys = np.asarray(random.split(KEY, 1000))
    assert len(np.unique(keys, axis=0)) == 1000
    numbers = np.stack([random.bits(k, (4,)) for k in keys[:50]])
    assert len(np.unique(numbers)) == numbers.size


def test_fold_in_takes_integers_of_any_kind() -> None:
    wanted = random.fold_in(KEY, 7)
    for data in (np.int64(7), np.uint8(7), 7 + 2**32 * np.int64(3)):
        np.testing.assert_array_equal(random.fold_in(KEY, data), wanted)
    folded = tn.jit(lambda k, n: random.fold_in(k, n))
    for n in (7, 8, 2**32 - 1):
        np.testing.assert_array_equal(folded(KEY, n), random.fold_in(KEY, n))
    assert folded.cache_info().compiles == 1


def test_refused_keys() -> None:
    refuses(lambda k: random.bits(k), TypeError, r"^bits: key of dtype int64; uint32 is needed", np.arange(2))
    refuses(lambda k: random.normal(k), ValueError, r"^normal: key of shape \(3,\); a last axis", KEY[[0, 1, 0]])
    refuses(lambda k: random.split(k), ValueError, r"^split: key of shape \(1, 2\); one key", KEY[None])
    refuses(lambda k: random.fold_in(k, 0.5), TypeError, r"^fold_in: data of dtype float64", KEY)
    refuses(lambda k: random.fold_in(k, k), TypeError, r"^fold_in: data of dtype uint32 and rank 1", KEY)
    refuses(lambda k: random.split(k, -1), ValueError, r"^split: size -1", KEY)
    refuses(lambda k: random.clone(k[0]), ValueError, r"^clone: key of shape \(\)", KEY)
    refuses(
        lambda k: random.wrap_key_data(k, impl="rbg"), Exception, r"^wrap_key_data: impl 'rbg'; 'threefry2x32'", KEY
    )


def test_refused_seeds() -> None:
    with pytest.raises(
        TypeError, match=r"^key: seed of dtype float64; an integer is needed \(at .*test_keys.py:\d+\)$"
    ):
        random.key(0.5)
    with pytest.raises(ValueError, match=r"^key: seed of rank 1; a number is needed"):
        random.key(np.arange(3))
    with pytest.raises(OverflowError, match=r"^fold_in: Python integer 4294967296 out of bounds for uint32"):
        random.fold_in(KEY, 2**32)
    with pytest.raises(OverflowError, match=r"^fold_in: Python integer -1 out of bounds for uint32"):
        tn.jit(lambda k, n: random.fold_in(k, n))(KEY, -1)


def test_missing_names() -> None:
    with pytest.raises(AttributeError, match="tenferro.random has no 'nomral'; normal is the nearest name"):
        _ = random.nomral
    assert "split" in dir(random) and not any(name.startswith("_") for name in dir(random))


@pytest.mark.parametrize("shape", [(2.0,), 2.0, [3, np.float32(2)]])
def test_floats_are_no_sizes(shape):
    text = r"^normal: size .* of class float(32)?; an integer is needed.* \(at .*test_keys"
    with pytest.raises(TraceError, match=text):
        tn.random.normal(tn.random.key(0), shape)
    with pytest.raises(TraceError, match=text):
        tn.random.normal(tn.random.key(0), shape=shape)
