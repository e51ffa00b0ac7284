"""Formulas of sizes, evaluated: the leaves of a call in, the words that follow from them in a block out.

A formula is a list of lines (code, operand, operand) over numbers: leaves first, then constants, then the results of
operations in order, ints of 64 bits or doubles. A condition that does not hold, or an int that leaves the range, ends
the evaluation: the call is not one that the formula serves. ``tenferro.engines.cpu.hinted`` writes them.
"""

from __future__ import annotations

from tenferro.engines.cpu.native_language import inlined, native
from tenferro.engines.cpu.native_memory import memcpy
from tenferro.engines.cpu.native_prelude import (
    add_overflows,
    as_float,
    float_add,
    float_divide,
    float_equal,
    float_less,
    float_multiply,
    float_subtract,
    load,
    rounded,
    signed_divide,
    signed_multiply_overflows,
    store,
    subtract_overflows,
)

MAX_NUMBERS, MAX_LINES = 1024, 2048
NUMBER_BYTES = 8 * MAX_NUMBERS
LINE_BYTES = 24

# A formula, in bytes: how many leaves and constants it has, the bytes of its lines; then the leaves that the block was
# brought to last, the constants, the lines.
FORMULA_LEAVES, FORMULA_CONSTANTS, FORMULA_BYTES, FORMULA_LAST = range(0, 32, 8)
# Operations, conditions, and PATCH: (number, byte in the block).
ADD, SUBTRACT, MULTIPLY, FLOOR, REST, FLOAT_ADD, FLOAT_SUBTRACT, FLOAT_MULTIPLY, FLOAT_DIVIDE = range(9)
AS_FLOAT, ROUND = 9, 10
EQUAL, DIFFERENT, LESS, AT_LEAST, FLOAT_EQUAL, FLOAT_DIFFERENT, FLOAT_LESS, FLOAT_AT_LEAST = range(11, 19)
PATCH = 19


@inlined
def floor_quotient(a: int, b: int) -> int:
    """As Python's, of a divisor that is not 0."""
    if b == -1:
        return -a
    quotient = signed_divide(a, b)
    if quotient * b != a and (a < 0) != (b < 0):
        return quotient - 1
    return quotient


@inlined
def holds(code: int, a: int, b: int) -> int:
    """Whether a condition holds."""
    if code == EQUAL:
        return a == b
    if code == DIFFERENT:
        return a != b
    if code == LESS:
        return a < b
    if code == AT_LEAST:
        return a >= b
    if code == FLOAT_LESS:
        return float_less(a, b)
    if code == FLOAT_AT_LEAST:
        return float_less(b, a) | float_equal(a, b)
    if code == FLOAT_EQUAL:
        return float_equal(a, b)
    return float_equal(a, b) == 0


@native
def computed_float(code: int, a: int, b: int) -> int:
    """The result of an operation on doubles, or between them and ints."""
    if code == AS_FLOAT:
        return as_float(a)
    if code == ROUND:
        return rounded(a)
    if code == FLOAT_ADD:
        return float_add(a, b)
    if code == FLOAT_SUBTRACT:
        return float_subtract(a, b)
    if code == FLOAT_MULTIPLY:
        return float_multiply(a, b)
    return float_divide(a, b)


@native
def evaluate(line: int, end: int, numbers: int, result: int, block: int) -> int:
    """Compute the results, from address ``result`` on, and write patches into the block; 0 where a condition does not
    hold, and nothing is written into the block: patches are the last lines."""
    while line < end:
        code = load(line)
        a = load(numbers + load(line + 8))
        if code == PATCH:
            store(block + load(line + 16), a)
        else:
            b = load(numbers + load(line + 16))
            if code >= EQUAL:
                if not holds(code, a, b):
                    return 0
            else:
                if code == MULTIPLY:
                    if signed_multiply_overflows(a, b):
                        return 0
                    store(result, a * b)
                if code == ADD:
                    if add_overflows(a, b):
                        return 0
                    store(result, a + b)
                if code == SUBTRACT:
                    if subtract_overflows(a, b):
                        return 0
                    store(result, a - b)
                if code == FLOOR or code == REST:
                    if b == 0:
                        return 0
                    quotient = floor_quotient(a, b)
                    if code == REST:
                        quotient = a - quotient * b
                    store(result, quotient)
                if code > REST:
                    store(result, computed_float(code, a, b))
                result += 8
        line += LINE_BYTES
    return 1


@native
def follow(formula: int, numbers: int, block: int) -> int:
    """Bring a block to the leaves of a call, which stand in ``numbers``; 0 where the formula does not serve them. A
    block that was brought to the same ones last time is left as it is."""
    leaves = 8 * load(formula + FORMULA_LEAVES)
    last = formula + FORMULA_LAST
    k = 0
    while k < leaves and load(numbers + k) == load(last + k):
        k += 8
    if k == leaves:
        return 1
    constants = 8 * load(formula + FORMULA_CONSTANTS)
    memcpy(numbers + leaves, last + leaves, constants)
    line = last + leaves + constants
    end = line + load(formula + FORMULA_BYTES)
    if not evaluate(line, end, numbers, numbers + leaves + constants, block):
        return 0
    memcpy(last, numbers, leaves)
    return 1
