"""Random bits: a key of two words and a counter go in, the block that threefry2x32 makes of them comes out.

Salmon, Moraes, Dror and Shaw, Parallel random numbers: as easy as 1, 2, 3 (SC'11), sections 3.3 and 4.2: Threefish with
words of 32 bits, two of them, and 20 rounds. What comes out depends on key and counter alone, so that any lane of any
engine makes any element.
"""

from __future__ import annotations

from tenferro.tracer.scalar.builder import U32, U64, Builder, Dtype, Value

ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
"""Bits by which the second word turns in each of eight rounds, which repeat."""
PARITY = 0x1BD11BDA
"""What the words of a key are combined with to make its third one (section 3.3, C240 cut to 32 bits)."""
ROUNDS, ROUNDS_TO_A_KEY = 20, 4


def threefry(b: Builder, first: Value, second: Value, counter: Value, dtype: Dtype) -> Value:
    """The block for a uint64 counter under the key (first, second), both uint32: its words side by side as uint64, the
    first in front, or their exclusive or as uint32."""
    x, y = block(b, first, second, counter)
    return b.xor(x, y) if dtype == U32 else joined(b, x, y)


def joined(b: Builder, x: Value, y: Value) -> Value:
    """Two words side by side, the first in front."""
    return b.or_(b.shl(b.convert(x, U64), b.const(32, U64)), b.convert(y, U64))


def block(b: Builder, first: Value, second: Value, counter: Value) -> tuple[Value, Value]:
    """Both words of a block."""
    words: tuple[Value, Value] = b.call("threefry", _block, first, second, counter)
    return words


def _block(b: Builder, first: Value, second: Value, counter: Value) -> tuple[Value, Value]:
    keys = (first, second, b.xor(b.xor(first, second), b.const(PARITY, U32)))
    x = b.convert(b.shr(counter, b.const(32, U64)), U32)
    y = b.convert(counter, U32)
    x, y = b.add(x, first), b.add(y, second)
    for number in range(ROUNDS):
        x = b.add(x, y)
        y = b.xor(_turned(b, y, ROTATIONS[number % len(ROTATIONS)]), x)
        if number % ROUNDS_TO_A_KEY == ROUNDS_TO_A_KEY - 1:
            used = number // ROUNDS_TO_A_KEY + 1
            x = b.add(x, keys[used % 3])
            y = b.add(y, b.add(keys[(used + 1) % 3], b.const(used, U32)))
    return x, y


def _turned(b: Builder, x: Value, bits: int) -> Value:
    """Rotated to the left."""
    return b.or_(b.shl(x, b.const(bits, U32)), b.shr(x, b.const(32 - bits, U32)))
