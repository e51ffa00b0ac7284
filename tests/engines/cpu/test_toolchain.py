import ctypes
import gc
import os
import subprocess
import sys
import weakref

import pytest

from tenferro.engines.cpu import toolchain
from tenferro.engines.cpu.object_symbols import undefined_symbols
from tenferro.engines.cpu.toolchain import Target, compile_text, host_target
from tenferro.engines.disk_cache import OBJECTS, DiskCache
from tenferro.tracer.errors import LoweringError

if not toolchain.supported():
    pytest.skip("this machine is served by the reference engine", allow_module_level=True)

TEXT = """
define i64 @triple(i64 %x) {
  %y = mul i64 %x, 3
  ret i64 %y
}
"""
CALL = """
declare double @NAME(double)
define double @f(double %x) {
  %y = call double @NAME(double %x)
  ret double %y
}
"""


def call(library, name, *args):
    return ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(args))(library.address(name))(*args)


@pytest.fixture
def fresh_cache(tmp_path, monkeypatch):
    cache = DiskCache(tmp_path / "objects", 1 << 24, OBJECTS)
    monkeypatch.setattr(toolchain, "disk_cache", lambda: cache)
    return cache


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_text_becomes_code(level):
    library = compile_text(TEXT, level)
    assert call(library, "triple", 14) == 42
    assert 0 < library.code_bytes < 200
    assert "triple:" in library.asm() or "_triple:" in library.asm()


def test_the_second_compile_comes_from_the_disk(fresh_cache):
    first = compile_text(TEXT, 0)
    second = compile_text(TEXT, 0)
    assert (first.from_cache, second.from_cache) == (False, True)
    assert first.code_bytes == second.code_bytes
    assert first.address("triple") != second.address("triple")
    assert call(first, "triple", 5) == call(second, "triple", 5) == 15


def test_what_changes_code_changes_the_key(fresh_cache):
    host = host_target()
    narrow = Target(host.cpu, host.features + ",-avx512f" if "+avx512f" in host.features else host.features + ",", 256)
    assert not compile_text(TEXT, 0).from_cache
    assert not compile_text(TEXT, 2).from_cache
    assert not compile_text(TEXT, 0, narrow).from_cache
    assert not compile_text(TEXT, 0, optimize=True).from_cache
    assert not compile_text(TEXT.replace("3", "5"), 0).from_cache
    assert compile_text(TEXT, 0).from_cache


def test_corrupt_entries_are_recompiled(fresh_cache):
    compile_text(TEXT, 0)
    for path in fresh_cache.directory.iterdir():
        path.write_bytes(path.read_bytes()[:-40] + bytes(40))
    assert not (again := compile_text(TEXT, 0)).from_cache
    assert call(again, "triple", 7) == 21
    assert compile_text(TEXT, 0).from_cache


def test_undefined_symbols_are_refused_by_name(fresh_cache):
    text = CALL.replace("NAME", "sin")
    with pytest.raises(LoweringError, match="needs sin;"):
        compile_text(text, 0)
    with pytest.raises(LoweringError, match="needs fmod;"):
        compile_text("define double @f(double %x, double %y) {\n %z = frem double %x, %y\n ret double %z\n}", 0)
    assert list(fresh_cache.directory.iterdir()) == []


def test_symbols_passed_by_address_are_allowed():
    strlen = ctypes.cast(ctypes.CDLL(None).strlen, ctypes.c_void_p).value
    text = """
    declare i64 @strlen(ptr)
    define i64 @f(i64 %x) {
      %p = inttoptr i64 %x to ptr
      %y = call i64 @strlen(ptr %p)
      ret i64 %y
    }"""
    library = compile_text(text, 0, symbols={"strlen": int(strlen or 0)})
    word = ctypes.create_string_buffer(b"tenferro")
    assert call(library, "f", ctypes.addressof(word)) == 8


def test_what_llvm_itself_calls_is_allowed():
    text = """
    declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
    define i64 @clear(i64 %a, i64 %n) {
      %p = inttoptr i64 %a to ptr
      call void @llvm.memset.p0.i64(ptr %p, i8 7, i64 %n, i1 false)
      ret i64 0
    }"""
    buffer = ctypes.create_string_buffer(100)
    call(compile_text(text, 0), "clear", ctypes.addressof(buffer), 99)
    assert buffer.raw == b"\7" * 99 + b"\0"


@pytest.mark.parametrize(
    "text", ["define foo", "define i64 @f(i64 %x) {\n ret i64 %y\n}", "define void @f() {\n ret i64 1\n}"]
)
def test_text_that_is_not_llvm_is_refused(text):
    with pytest.raises(LoweringError, match="compile: the LLVM text"):
        compile_text(text, 0)


def test_names_and_levels_are_checked():
    library = compile_text(TEXT, 0)
    with pytest.raises(LoweringError, match="quadruple is not defined"):
        library.address("quadruple")
    with pytest.raises(LoweringError, match="level 4"):
        compile_text(TEXT, 4)


def test_a_closed_library_gives_no_address():
    library = compile_text(TEXT, 0)
    library.address("triple")
    library.close()
    library.close()
    with pytest.raises(LoweringError, match="closed"):
        library.address("triple")


def test_the_engine_dies_with_its_library():
    library = compile_text(TEXT, 0)
    engine = weakref.ref(library._engine)
    assert engine() is not None
    del library
    gc.collect()
    compile_text(TEXT, 0)
    gc.collect()
    assert engine() is None


def test_the_same_text_at_once_from_several_threads():
    from concurrent.futures import ThreadPoolExecutor

    texts = [TEXT.replace("3", str(3 + i % 4)) for i in range(24)]
    with ThreadPoolExecutor(8) as pool:
        libraries = list(pool.map(lambda t: compile_text(t, 0), texts))
    assert [call(library, "triple", 10) for library in libraries] == [10 * (3 + i % 4) for i in range(24)]


def test_macho_and_elf_symbols_are_read():
    with toolchain._llvm() as llvm:
        for triple in ("x86_64-apple-macosx", "x86_64-unknown-linux-gnu"):
            if not triple.startswith(llvm.get_process_triple().split("-")[0]):
                pytest.skip("the host's code generator writes no x86 objects")
            machine = llvm.Target.from_triple(triple).create_target_machine()
            module = llvm.parse_assembly(CALL.replace("NAME", "cos"))
            module.triple = triple
            assert undefined_symbols(machine.emit_object(module)) == {"cos"}
    with pytest.raises(LoweringError, match="neither ELF64 nor Mach-O"):
        undefined_symbols(b"MZ" + bytes(100))


def test_no_llvmlite_before_the_first_compile():
    code = "import sys, tenferro.engines.cpu.memory, tenferro.engines.cpu.threads; assert 'llvmlite' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


FORK_DURING_COMPILE = '''
import os, signal, threading, time
from tenferro.engines.cpu.toolchain import compile_text
TEXT = """define i64 @f(i64 %x) {{
{body}
  ret i64 %x
}}"""
def text(i): return TEXT.format(body="\\n".join(f"  %y{j} = mul i64 %x, {i * 1000 + j}" for j in range(200)))
stop, compiled = False, 0
def background():
    global compiled
    while not stop:
        compile_text(text(compiled), 0); compiled += 1
thread = threading.Thread(target=background); thread.start()
while compiled < 2: time.sleep(.005)
hung = 0
for child in range(20):
    before = compiled
    pid = os.fork()
    if pid == 0:
        signal.alarm(10)
        compile_text(text(100_000 + child), 0)
        os._exit(0)
    hung += os.waitpid(pid, 0)[1] != 0
    if hung: break
stop = True; thread.join()
assert hung or compiled > 5, compiled
raise SystemExit(hung)
'''


def test_children_forked_during_a_compile_compile():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK_DURING_COMPILE], timeout=120, capture_output=True,
        env={"PATH": "", "TENFERRO_CACHE": "0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()


def test_narrow_registers_are_a_setting(tmp_path) -> None:
    """Without AVX-512 registers the text of a kernel has none, and its results have the same bits."""
    script = """
import numpy as np, tenferro as tn
f = tn.jit(lambda x: np.tanh(x).sum(axis=1))
x = np.linspace(-3, 3, 3000, dtype="f4").reshape(3, 1000)
print(f(x).tobytes().hex(), "zmm" in f.lower(x).as_text("asm"))
"""
    found = {}
    for bits in ("0", "256"):
        environment = os.environ | {"TENFERRO_VECTOR_BITS": bits, "TENFERRO_CACHE_DIR": str(tmp_path)}
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
        found[bits] = done.stdout.split()
    assert found["0"][0] == found["256"][0]
    assert found["256"][1] == "False"
    assert found["0"][1] == str(host_target().vector_bits == 512)
