import ctypes
import gc
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tenferro.engines.cpu import memory, native, native_entry, threads, toolchain
from tenferro.engines.cpu.native_language import Foreign, Global, NativeSyntaxError, translate
from tenferro.engines.cpu.native_prelude import FLOAT_CONTROL, IS_ARM
from tenferro.engines.cpu.toolchain import compile_text
from tenferro.tracer.errors import LoweringError, MemoryLimitError

if not toolchain.supported():
    pytest.skip("this machine is served by the reference engine", allow_module_level=True)

# scale: z[i] = x[i] * 0.5. find: latch = unsigned min of itself and the first negative x.
KERNELS = """
define void @scale(ptr %p, i64 %b, i64 %e) {
entry:
  %xp = getelementptr i64, ptr %p, i64 1
  %zp = getelementptr i64, ptr %p, i64 2
  %x = load ptr, ptr %xp
  %z = load ptr, ptr %zp
  br label %l
l:
  %i = phi i64 [%b, %entry], [%j, %l]
  %px = getelementptr double, ptr %x, i64 %i
  %pz = getelementptr double, ptr %z, i64 %i
  %v = load double, ptr %px
  %w = fmul double %v, 5.0e-1
  store double %w, ptr %pz
  %j = add i64 %i, 1
  %c = icmp slt i64 %j, %e
  br i1 %c, label %l, label %d
d:
  ret void
}
define void @find(ptr %p, i64 %b, i64 %e) {
entry:
  %xp = getelementptr i64, ptr %p, i64 1
  %x = load ptr, ptr %xp
  %rel = load i64, ptr %p
  %latch = getelementptr i64, ptr %p, i64 %rel
  br label %l
l:
  %i = phi i64 [%b, %entry], [%j, %next]
  %px = getelementptr double, ptr %x, i64 %i
  %v = load double, ptr %px
  %bad = fcmp olt double %v, 0.0
  br i1 %bad, label %hit, label %next
hit:
  %old = atomicrmw umin ptr %latch, i64 %i monotonic
  br label %next
next:
  %j = add i64 %i, 1
  %c = icmp slt i64 %j, %e
  br i1 %c, label %l, label %d
d:
  ret void
}
"""


@pytest.fixture(scope="module")
def kernels():
    return compile_text(KERNELS, 2)


def scale_block(kernels, n, grain, heavy=False, byte_offset=0):
    block = native.Block(heavy=heavy)
    launch = block.add_launch(kernels.address("scale"), n, grain, [0, 0, 0])
    block.add_patch(0, launch, 1, byte_offset)
    block.add_patch(1, launch, 2)
    return block


@pytest.mark.parametrize("heavy", [False, True])
@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize(
    ("n", "grain"), [(1, 1), (1000, 1), (1000, 7), (1000, 999), (1000, 1000), (1000, 5000), (0, 1)]
)
def test_a_launch_covers_every_item(kernels, heavy, workers, n, grain):
    x, z = np.arange(1000.0), np.full(1000, -1.0)
    with threads.threads(workers):
        latch = native.module().enter(scale_block(kernels, n, grain, heavy).seal(), threads.count(), x, z)
    assert latch == native.CLEAN
    np.testing.assert_array_equal(z[:n], x[:n] * 0.5)
    assert (z[n:] == -1).all()


def test_launches_run_in_order(kernels):
    block = native.Block()
    for i in range(4):
        launch = block.add_launch(kernels.address("scale"), 10, 3, [0, 0, 0])
        block.add_patch(i, launch, 1)
        block.add_patch(i + 1, launch, 2)
    arrays = [np.full(10, 16.0), *[np.zeros(10) for _ in range(4)]]
    native.module().enter(block.seal(), threads.count(), *arrays)
    assert [a[0] for a in arrays] == [16, 8, 4, 2, 1]


@pytest.mark.parametrize("launches", [1, 300])  # on the native stack, on the heap
def test_a_record_says_when_each_launch_ran(kernels, launches):
    block = native.Block()
    for _ in range(launches):
        block.add_patch(0, launch := block.add_launch(kernels.address("scale"), 10, 10, [0, 0, 0]), 1)
        block.add_patch(0, launch, 2)
    address, x = block.seal(), np.full(10, 2.0**launches)
    record = np.zeros((launches + 1, native_entry.RECORD_WORDS), np.int64)
    live = memory.stats().live
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    assert native.module().enter_recorded(address, 1, record.ctypes.data, x) == native.CLEAN
    after = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    np.testing.assert_array_equal(x, 1.0)
    times = record[:launches, :2].reshape(-1)
    assert before <= times[0] and times[-1] <= after and (np.diff(times) >= 0).all()
    assert (record[:launches, 2] == live).all()
    assert not record[launches].any()
    record[:] = 0
    native.module().enter(address, 1, x)
    assert not record.any()


def test_a_record_needs_an_address(kernels):
    address = scale_block(kernels, 10, 10).seal()
    with pytest.raises(TypeError, match="enter_recorded: fewer than 3 arguments; needed addresses"):
        native.module().enter_recorded(address, 1)
    with pytest.raises(TypeError):
        native.module().enter_recorded(address, 1, "no address", np.ones(10), np.ones(10))


def test_a_block_larger_than_the_native_stack_buffer(kernels):
    block = native.Block()
    for _ in range(300):
        launch = block.add_launch(kernels.address("scale"), 10, 10, [0, 0, 0])
        block.add_patch(0, launch, 1)
        block.add_patch(0, launch, 2)
    address = block.seal()
    assert block.buffer.nbytes > 8192
    x = np.full(10, 2.0**300)
    native.module().enter(address, 1, x)
    np.testing.assert_array_equal(x, 1.0)


def test_byte_offsets_reach_views(kernels):
    x, z = np.arange(20.0), np.zeros(10)
    native.module().enter(scale_block(kernels, 10, 100, byte_offset=80).seal(), 1, x, z)
    np.testing.assert_array_equal(z, x[10:] * 0.5)


@pytest.mark.parametrize("workers", [1, 4])
def test_the_latch_holds_the_smallest_finding(kernels, workers):
    block = native.Block()
    block.add_launch(kernels.address("scale"), 0, 1, [0, 0, 0])
    launch = block.add_launch(kernels.address("find"), 10_000, 16, [0, 0])
    block.add_patch(0, launch, 1)
    address = block.seal()
    x = np.ones(10_000)
    with threads.threads(workers):
        assert native.module().enter(address, threads.count(), x) == native.CLEAN
        x[[9000, 777, 778, 5000]] = -1
        assert native.module().enter(address, threads.count(), x) == 777
        x[:] = 1
        assert native.module().enter(address, threads.count(), x) == native.CLEAN


def test_one_block_from_many_threads_at_once(kernels):
    address = (block := scale_block(kernels, 5000, 100, heavy=True)).seal()
    enter = native.module().enter

    def run(seed):
        for i in range(50):
            x, z = np.full(5000, float(seed * 1000 + i)), np.zeros(5000)
            enter(address, 3, x, z)
            assert (z == x * 0.5).all()

    with threads.threads(3):
        threads.count()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(run, range(8)))
    assert block.buffer[native_entry.LATCH] == native.CLEAN


def test_arguments_are_checked(kernels):
    enter, x = native.module().enter, np.zeros(3)
    address = (block := scale_block(kernels, 3, 3)).seal()

    class Subclass(np.ndarray):
        pass

    for arguments in ((), (address,), (address, 1), (address, 1, x), (address, 1, x, [0, 0, 0]), ("a", 1, x, x),
                      (address, 1.5, x, x), (address, 1, x, x.view(Subclass)), (address, 1, x, None)):  # fmt: skip
        with pytest.raises(TypeError):
            enter(*arguments)
    assert enter(address, 1, x, x) == native.CLEAN
    del block


def test_block_refuses_what_cannot_run(kernels):
    block = native.Block()
    with pytest.raises(ValueError, match="grain 0"):
        block.add_launch(1, 10, 0, [0])
    with pytest.raises(ValueError, match="total -1"):
        block.add_launch(1, -1, 1, [0])
    with pytest.raises(ValueError, match="0 params"):
        block.add_launch(1, 1, 1, [])
    block.add_launch(1, 1, 1, [0, 0])
    with pytest.raises(ValueError, match="1 to 1"):
        block.add_patch(0, 0, 2)
    with pytest.raises(ValueError, match="parameter 0"):
        block.add_patch(0, 0, 0)
    with pytest.raises(ValueError, match="at least 0"):
        block.add_patch(-1, 0, 1)


@pytest.mark.parametrize("heavy", [False, True])
def test_outputs_are_made_natively(kernels, heavy):
    block = native.Block(heavy=heavy)
    x = np.arange(24.0).reshape(2, 3, 4)
    first, nothing, second = (
        block.add_output((2, 3, 4), x.dtype),
        block.add_output((0, 5), np.dtype("f4")),
        block.add_output((24,), x.dtype),
    )
    for source, target in ((0, first), (first, second)):
        launch = block.add_launch(kernels.address("scale"), 24, 5, [0, 0, 0])
        block.add_patch(source, launch, 1)
        block.add_patch(target, launch, 2)
    assert (first, nothing, second) == (-1, -2, -3)
    address = block.seal()
    results = [memory.enter(block, address, 2, x) for _ in range(3)]
    for latch, a, b, c in results:
        assert latch == native.CLEAN
        assert all(memory.is_pooled(o) and o.flags.owndata and o.flags.writeable for o in (a, b, c))
        np.testing.assert_array_equal(a, x / 2)
        np.testing.assert_array_equal(c, x.ravel() / 4)
        assert (b.shape, b.dtype, b.strides) == ((0, 5), np.float32, (0, 0))
    assert len({r[1].ctypes.data for r in results}) == 3


def test_outputs_die_where_the_run_fails(kernels):
    gc.collect()
    before = memory.stats().live
    x = np.zeros(1 << 16)
    dtype = np.dtype("f8")
    references = sys.getrefcount(dtype)
    for missing in (False, True):
        block = native.Block()
        target = block.add_output((1 << 16,), dtype)
        if not missing:
            block.add_output((1 << 50,), dtype)
        launch = block.add_launch(kernels.address("scale"), 1 << 16, 1 << 16, [0, 0, 0])
        block.add_patch(int(missing), launch, 1)
        block.add_patch(target, launch, 2)
        with pytest.raises(
            TypeError if missing else MemoryLimitError, match="fewer arrays" if missing else "shape .11258999"
        ):
            memory.enter(block, block.seal(), 1, x)
    del block
    gc.collect()
    assert memory.stats().live == before
    assert sys.getrefcount(dtype) == references


@pytest.mark.parametrize(("shape", "dtype"), [((-1,), "f8"), ((1,) * 65, "f8"), ((1,), "O"), ((1,), "S3")])
def test_outputs_that_cannot_be_made_are_refused(shape, dtype):
    with pytest.raises(ValueError, match="add_output"):
        native.Block().add_output(shape, np.dtype(dtype))


CONTROL = """
define i64 @read() {
  READ
}
define i64 @write(i64 %v) {
  WRITE
  ret i64 0
}
"""
if IS_ARM:
    READ = "%v = call i64 @llvm.aarch64.get.fpcr()\n ret i64 %v"
    WRITE = "call void @llvm.aarch64.set.fpcr(i64 %v)"
    FLUSH = FLOAT_CONTROL | 1 << 24
else:
    READ = """%p = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %p)
  %v = load i32, ptr %p
  %w = zext i32 %v to i64
  ret i64 %w"""
    WRITE = (
        "%p = alloca i32\n %w = trunc i64 %v to i32\n store i32 %w, ptr %p\n call void @llvm.x86.sse.ldmxcsr(ptr %p)"
    )
    FLUSH = FLOAT_CONTROL | 1 << 15 | 1 << 6


@pytest.mark.parametrize("workers", [1, 4])
def test_flush_to_zero_of_others_changes_nothing_and_stays(kernels, workers):
    library = compile_text(CONTROL.replace("READ", READ).replace("WRITE", WRITE), 0)
    read = ctypes.PYFUNCTYPE(ctypes.c_int64)(library.address("read"))
    write = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(library.address("write"))
    x, z = np.full(4000, 5e-324 * 6), np.full(4000, 5e-324)
    address = (block := scale_block(kernels, 4000, 10)).seal()
    before = read()
    with threads.threads(workers):
        count = threads.count()
        write(FLUSH)
        try:
            flushed = float(np.float64(5e-324) * np.float64(3.0))
            latch = native.module().enter(address, count, x, z)
            after = read()
        finally:
            write(before)
    assert flushed == 0.0
    assert latch == native.CLEAN
    assert after & FLUSH == FLUSH
    assert (z == 5e-324 * 3).all()
    del block


def test_the_gil_is_free_during_a_heavy_block(kernels):
    x, z = np.zeros(1 << 20), np.zeros(1 << 20)
    address = (block := scale_block(kernels, 1 << 20, 1 << 20, heavy=True)).seal()
    ticks = 0
    running = True

    def tick():
        nonlocal ticks
        while running:
            ticks += 1
            time.sleep(0)

    thread = threading.Thread(target=tick)
    thread.start()
    enter = native.module().enter
    interval = sys.getswitchinterval()
    sys.setswitchinterval(100)  # nobody is asked to give the GIL away
    try:
        for _ in range(30):
            enter(address, 1, x, z)
    finally:
        sys.setswitchinterval(interval)
        running = False
        thread.join()
    assert ticks > 0
    del block


def test_one_inline_launch_is_cheap(kernels):
    address = (block := scale_block(kernels, 8, 8)).seal()
    x, z, enter = np.zeros(8), np.zeros(8), native.module().enter
    best = float("inf")
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(2000):
            enter(address, 1, x, z)
        best = min(best, (time.perf_counter() - start) / 2000)
    assert best < 2e-6  # 0.07 µs on an idle machine
    del block


def test_the_layout_check_reads_real_arrays(monkeypatch):
    native.check_layout()
    monkeypatch.setattr(native_entry, "DATA_AT", native_entry.DATA_AT + 8)
    with pytest.raises(LoweringError, match="the ndarray's data"):
        native.check_layout()


def test_the_module_text_holds_no_address():
    code = "from tenferro.engines.cpu.native import text; print(text())"
    texts = {subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout for _ in range(2)}
    assert len(texts) == 1


def translated(source, tmp_path, name):
    import importlib.util

    path = tmp_path / f"{name}.py"
    path.write_text("from tenferro.engines.cpu.native_language import *\n" + source)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, translate([module], "")


LANGUAGE = '''
LIMIT = 10
CELL = Global("cell", 64)
@native
def collatz(n: int) -> int:
    """Steps to 1."""
    steps = 0
    while n != 1:
        if n & 1:
            n = 3 * n + 1
        else:
            n //= 2
        steps += 1
    return steps
@native
def loops(n: int) -> int:
    total = 0
    i = 0
    while True:
        i += 1
        if i > n:
            break
        if i % 3 == 0 and not i % 2 == 0 or i == LIMIT:
            continue
        total += collatz(i) * (i < 5) - (-i >> 63)
    return total
@native
def address(n: int) -> int:
    return CELL
'''


def test_native_functions_mean_what_python_means(tmp_path):
    module, text = translated(LANGUAGE, tmp_path, "language_sample")
    library = compile_text(text, 2, optimize=True)
    function = {
        n: ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(library.address(n)) for n in ("collatz", "loops", "address")
    }
    for n in range(1, 40):
        assert function["collatz"](n) == module.collatz(n)
        expected = 0
        for i in range(1, n + 1):
            if not (i % 3 == 0 and i % 2 != 0 or i == 10):
                expected += module.collatz(i) * (i < 5) - 1
        assert function["loops"](n) == expected
    assert function["address"](0) % 64 == 0


@pytest.mark.parametrize(
    "body",
    [
        "return [n]",
        "n.x = 1\n    return n",
        "for i in range(n):\n        pass\n    return n",
        "return unknown(n)",
        "return n / 2",
        "return other(n, n)",
        "return 1 < n < 3",
        "return wide(n)",
        "return 'text'",
        "return n(1)",
        "try:\n        return n\n    finally:\n        pass",
    ],
)
def test_what_is_outside_the_native_subset_is_refused(body, tmp_path):
    head = "wide = Foreign('wide', 'i64', ())\n@native\ndef other(n: int) -> int:\n    return n\n"
    source = f"{head}@native\ndef f(n: int) -> int:\n    {body}\n"
    with pytest.raises(NativeSyntaxError, match="f, line"):
        translated(source, tmp_path, "refused_sample")


def test_native_code_does_not_run_as_python():
    with pytest.raises(TypeError, match="native code"):
        Foreign("f", "i64", ())()
    assert Global("g", 8).size == 8
