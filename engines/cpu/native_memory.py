"""The buffer pool's native half: an allocator with the functions that a NumPy memory handler (NEP 49) needs.

A block is a header of 64 bytes and then the data, 64-byte aligned. Small blocks come from libc in size classes, four to
the octave, and wait in one list per class. Large ones are mapped; dead ones keep their pages, in the list of their
class and in a list by age, and the oldest are unmapped when the pool exceeds its bound. Live large blocks are listed
with a tag. A lock of its own guards it all: handler functions may run without the GIL.
"""

from __future__ import annotations

import sys

from tenferro.engines.cpu.native_language import Foreign, Global, native, stack
from tenferro.engines.cpu.native_prelude import (
    exchange32,
    leading_zeros,
    load,
    multiply_overflows,
    pause,
    release_store32,
    store,
)

HEADER = 64
# Fields of a header; NEXT links small blocks, and the two list nodes (next, previous) link large ones.
CAPACITY, REQUESTED, KIND, TAG, CLASS_NODE, AGE_NODE = 0, 8, 16, 24, 32, 48
SMALL, LARGE = 0x736D616C6C, 0x6C61726765
LARGE_BYTES = 128 << 10
PAGE = 4096
# From here on the kernel is asked for 2 MB pages: a first touch then costs one fault for 512 pages.
HUGE_BYTES = 4 << 20
CLASSES = 192
# How far above its own class a request looks for a dead block (half an octave), and how many blocks of a class it
# tries.
CLASSES_SEARCHED, BLOCKS_SEARCHED = 3, 8
SMALL_CACHE_BYTES = 16 << 20
LOCK_SPINS = 100

MEMORY_LOCK = Global("memory_lock", 64)
SMALL_LISTS = Global("small_lists", CLASSES * 8)
LARGE_LISTS = Global("large_lists", CLASSES * 16)
LIVE_LIST = Global("live_list", 16)
AGE_LIST = Global("age_list", 16)
# Words: live large bytes, dead large bytes, dead small bytes, bound of dead large bytes, limit of live large bytes,
# large blocks handed out, of which reused, mapped blocks.
MEMORY_STATE = Global("memory_state", 64)
LIVE, DEAD, DEAD_SMALL, POOL_BOUND, LIVE_LIMIT, HANDED_OUT, REUSED, MAPPED = 0, 8, 16, 24, 32, 40, 48, 56
# Whether data is overwritten when it is handed out and when it comes back.
POISON = Global("poison", 64)

posix_memalign = Foreign("posix_memalign", "i32", ("ptr", "i64", "i64"))
free = Foreign("free", "void", ("ptr",))
mmap = Foreign("mmap", "i64", ("ptr", "i64", "i32", "i32", "i32", "i64"))
munmap = Foreign("munmap", "i32", ("ptr", "i64"))
madvise = Foreign("madvise", "i32", ("ptr", "i64", "i32"))
sched_yield = Foreign("sched_yield", "i32", ())
memcpy = Foreign("memcpy", "ptr", ("ptr", "ptr", "i64"))
memset = Foreign("memset", "ptr", ("ptr", "i32", "i64"))
MEMORY_SYMBOLS = ("posix_memalign", "free", "mmap", "munmap", "madvise", "sched_yield")

IS_LINUX = int(sys.platform == "linux")
PROT_READ_WRITE = 3
MAP_PRIVATE_ANONYMOUS = 0x22 if IS_LINUX else 0x1002
MADV_HUGEPAGE = 14


@native
def lock_memory() -> int:
    """Nothing that waits for the GIL, allocates or runs Python may happen before the unlock."""
    spins = 0
    while not exchange32(MEMORY_LOCK, 0, 1):
        pause()
        spins += 1
        # The holder may have lost its core; holding takes well under a microsecond.
        if spins > LOCK_SPINS:
            sched_yield()
    return 0


@native
def unlock_memory() -> int:
    release_store32(MEMORY_LOCK, 0)
    return 0


@native
def link(anchor: int, node: int) -> int:
    """Put a node behind an anchor of a circular list."""
    following = load(anchor)
    store(node, following)
    store(node + 8, anchor)
    store(following + 8, node)
    store(anchor, node)
    return 0


@native
def unlink(node: int) -> int:
    following = load(node)
    previous = load(node + 8)
    store(previous, following)
    store(following + 8, previous)
    return 0


@native
def size_class(size: int) -> int:
    """Four classes to the octave, the first for up to 64 bytes."""
    if size <= 64:
        return 3
    bits = 64 - leading_zeros(size - 1)
    return (bits - 6) * 4 + ((size - 1) >> (bits - 3)) - 4


@native
def class_bytes(index: int) -> int:
    """The largest size of a class."""
    return ((index & 3) + 5) << ((index >> 2) + 3)


@native
def take_small(size: int, tag: int) -> int:
    index = size_class(size)
    head = SMALL_LISTS + 8 * index
    lock_memory()
    block = load(head)
    if block:
        store(head, load(block + CLASS_NODE))
        store(MEMORY_STATE + DEAD_SMALL, load(MEMORY_STATE + DEAD_SMALL) - load(block + CAPACITY))
    unlock_memory()
    if block == 0:
        result = stack(8)
        if posix_memalign(result, 64, HEADER + class_bytes(index)):
            return 0
        block = load(result)
        store(block + CAPACITY, class_bytes(index))
        store(block + KIND, SMALL)
    store(block + REQUESTED, size)
    store(block + TAG, tag)
    return block + HEADER


@native
def free_small(block: int) -> int:
    capacity = load(block + CAPACITY)
    lock_memory()
    dead = load(MEMORY_STATE + DEAD_SMALL) + capacity
    keep = dead <= SMALL_CACHE_BYTES
    if keep:
        head = SMALL_LISTS + 8 * size_class(capacity)
        store(block + CLASS_NODE, load(head))
        store(head, block)
        store(MEMORY_STATE + DEAD_SMALL, dead)
    unlock_memory()
    if not keep:
        free(block)
    return 0


@native
def mapping_bytes(size: int) -> int:
    """What is mapped for a large request: whole pages, of 64 kB above ``HUGE_BYTES``."""
    page = PAGE * 4
    if size > HUGE_BYTES:
        page = PAGE * 16
    return (size + HEADER + page - 1) // page * page


@native
def find_dead(length: int) -> int:
    """A dead large block of at least this many bytes, taken out of the lists; 0 where there is none. Needs the lock."""
    index = size_class(length)
    last = index + CLASSES_SEARCHED
    while index < last:
        anchor = LARGE_LISTS + 16 * index
        node = load(anchor)
        tried = 0
        while node != anchor and tried < BLOCKS_SEARCHED:
            block = node - CLASS_NODE
            if load(block + CAPACITY) + HEADER >= length:
                remove_dead(block)
                return block
            node = load(node)
            tried += 1
        index += 1
    return 0


@native
def remove_dead(block: int) -> int:
    unlink(block + CLASS_NODE)
    unlink(block + AGE_NODE)
    store(MEMORY_STATE + DEAD, load(MEMORY_STATE + DEAD) - load(block + CAPACITY) - HEADER)
    return 0


@native
def trim_dead(bound: int) -> int:
    """Take the oldest dead blocks out until at most ``bound`` bytes are left; a chain through their first word behind
    the header. Needs the lock; unmapping is left to the caller, since it takes milliseconds."""
    chain = 0
    while load(MEMORY_STATE + DEAD) > bound:
        block = load(AGE_LIST + 8) - AGE_NODE
        remove_dead(block)
        store(MEMORY_STATE + MAPPED, load(MEMORY_STATE + MAPPED) - 1)
        store(block + CLASS_NODE, chain)
        chain = block
    return chain


@native
def unmap_chain(chain: int) -> int:
    while chain:
        following = load(chain + CLASS_NODE)
        munmap(chain, load(chain + CAPACITY) + HEADER)
        chain = following
    return 0


@native
def trim(bound: int) -> int:
    """Give dead large blocks beyond ``bound`` bytes, and all dead small ones, back to the system."""
    lock_memory()
    chain = trim_dead(bound)
    small = 0
    index = 0
    while index < CLASSES:
        block = load(SMALL_LISTS + 8 * index)
        while block:
            following = load(block + CLASS_NODE)
            store(block + CLASS_NODE, small)
            small = block
            block = following
        store(SMALL_LISTS + 8 * index, 0)
        index += 1
    store(MEMORY_STATE + DEAD_SMALL, 0)
    unlock_memory()
    unmap_chain(chain)
    while small:
        following = load(small + CLASS_NODE)
        free(small)
        small = following
    return 0


@native
def map_block(length: int) -> int:
    """Fresh memory; 0 where the system has none, even after the pool has given up all it had."""
    block = mmap(0, length, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, -1, 0)
    if block == -1:
        trim(0)
        block = mmap(0, length, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, -1, 0)
    if block == -1:
        return 0
    if IS_LINUX and length >= HUGE_BYTES:
        madvise(block, length, MADV_HUGEPAGE)
    return block


@native
def take_large(size: int, tag: int) -> int:
    length = mapping_bytes(size)
    lock_memory()
    live = load(MEMORY_STATE + LIVE)
    limit = load(MEMORY_STATE + LIVE_LIMIT)
    if live + length > limit or live + length < 0:
        unlock_memory()
        return 0
    block = find_dead(length)
    reused = block != 0
    chain = 0
    if not reused:
        # Live and dead together stay under the limit too.
        chain = trim_dead(limit - live - length)
        unlock_memory()
        unmap_chain(chain)
        block = map_block(length)
        if block == 0:
            return 0
        store(block + CAPACITY, length - HEADER)
        store(block + KIND, LARGE)
        lock_memory()
        store(MEMORY_STATE + MAPPED, load(MEMORY_STATE + MAPPED) + 1)
    store(block + REQUESTED, size)
    store(block + TAG, tag)
    link(LIVE_LIST, block + AGE_NODE)
    store(MEMORY_STATE + LIVE, load(MEMORY_STATE + LIVE) + load(block + CAPACITY) + HEADER)
    store(MEMORY_STATE + HANDED_OUT, load(MEMORY_STATE + HANDED_OUT) + 1)
    store(MEMORY_STATE + REUSED, load(MEMORY_STATE + REUSED) + reused)
    unlock_memory()
    return block + HEADER


@native
def free_large(block: int) -> int:
    length = load(block + CAPACITY) + HEADER
    lock_memory()
    unlink(block + AGE_NODE)
    store(MEMORY_STATE + LIVE, load(MEMORY_STATE + LIVE) - length)
    link(LARGE_LISTS + 16 * size_class(length), block + CLASS_NODE)
    link(AGE_LIST, block + AGE_NODE)
    store(MEMORY_STATE + DEAD, load(MEMORY_STATE + DEAD) + length)
    chain = trim_dead(load(MEMORY_STATE + POOL_BOUND))
    unlock_memory()
    unmap_chain(chain)
    return 0


@native
def take(size: int, tag: int) -> int:
    """The address of ``size`` bytes, 64-byte aligned; 0 where they cannot be had."""
    if size < 0:
        return 0
    if size < LARGE_BYTES:
        data = take_small(size, tag)
    else:
        data = take_large(size, tag)
    if data and load(POISON):
        memset(data, 255, size)
    return data


@native
def handler_malloc(context: int, size: int) -> int:
    return take(size, 0)


@native
def handler_calloc(context: int, count: int, size: int) -> int:
    if multiply_overflows(count, size):
        return 0
    data = take(count * size, 0)
    if data:
        memset(data, 0, count * size)
    return data


@native
def handler_free(context: int, data: int, size: int) -> int:
    """NumPy's ``size`` is not needed: the header knows."""
    if data == 0:
        return 0
    block = data - HEADER
    if load(POISON):
        memset(data, 255, load(block + REQUESTED))
    if load(block + KIND) == LARGE:
        return free_large(block)
    return free_small(block)


@native
def handler_realloc(context: int, data: int, size: int) -> int:
    if data == 0:
        return take(size, 0)
    block = data - HEADER
    kept = load(block + REQUESTED)
    if size >= 0 and size <= load(block + CAPACITY) and (size >= LARGE_BYTES) == (load(block + KIND) == LARGE):
        store(block + REQUESTED, size)
        return data
    if kept > size:
        kept = size
    moved = take(size, load(block + TAG))
    if moved:
        memcpy(moved, data, kept)
        handler_free(0, data, 0)
    return moved


@native
def live_blocks(output: int, most: int) -> int:
    """Write (bytes, tag) of up to ``most`` live large blocks, newest first; how many."""
    found = 0
    lock_memory()
    node = load(LIVE_LIST)
    while node != LIVE_LIST and found < most:
        block = node - AGE_NODE
        store(output + 16 * found, load(block + REQUESTED))
        store(output + 16 * found + 8, load(block + TAG))
        found += 1
        node = load(node)
    unlock_memory()
    return found


@native
def set_tag(data: int, tag: int) -> int:
    store(data - HEADER + TAG, tag)
    return 0


@native
def set_bounds(pool_bound: int, live_limit: int) -> int:
    store(MEMORY_STATE + POOL_BOUND, pool_bound)
    store(MEMORY_STATE + LIVE_LIMIT, live_limit)
    return 0


@native
def set_poison(on: int) -> int:
    store(POISON, on)
    return 0


@native
def live_bytes() -> int:
    """Bytes in live large blocks."""
    return load(MEMORY_STATE + LIVE)


@native
def read_state(output: int) -> int:
    """Copy the state words."""
    lock_memory()
    memcpy(output, MEMORY_STATE, 64)
    unlock_memory()
    return 0


@native
def initialise_memory() -> int:
    """Make every list empty: called once, before anything else."""
    store(LIVE_LIST, LIVE_LIST)
    store(LIVE_LIST + 8, LIVE_LIST)
    store(AGE_LIST, AGE_LIST)
    store(AGE_LIST + 8, AGE_LIST)
    index = 0
    while index < CLASSES:
        anchor = LARGE_LISTS + 16 * index
        store(anchor, anchor)
        store(anchor + 8, anchor)
        index += 1
    return 0
