import ctypes
import os
import struct
import subprocess
import sys

import pytest

from tenferro.engines.cpu import object_loader, toolchain
from tenferro.engines.cpu.toolchain import compile_text

if not toolchain.supported():
    pytest.skip("this machine is served by the reference engine", allow_module_level=True)

TEXT = """
@zeros = internal global [4 x i64] zeroinitializer, align 64
@numbers = internal constant [3 x i64] [i64 5, i64 7, i64 11], align 32
@start = internal global i64 40
@where = internal global ptr @numbers
declare i64 @strlen(ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define internal i64 @inner(i64 %x) noinline {
  %y = mul i64 %x, 3
  ret i64 %y
}
define i64 @count() {
  %old = load i64, ptr @start
  %new = add i64 %old, 1
  store i64 %new, ptr @start
  ret i64 %new
}
define i64 @pick(i64 %k) {
  %table = load ptr, ptr @where
  %place = getelementptr i64, ptr %table, i64 %k
  %found = load i64, ptr %place
  %y = call i64 @inner(i64 %found)
  ret i64 %y
}
define i64 @zero(i64 %k) {
  %place = getelementptr [4 x i64], ptr @zeros, i64 0, i64 %k
  %found = load i64, ptr %place
  ret i64 %found
}
define i64 @length(i64 %address) {
  %p = inttoptr i64 %address to ptr
  %n = call i64 @strlen(ptr %p)
  ret i64 %n
}
define i64 @copy(i64 %to, i64 %from, i64 %n) {
  %a = inttoptr i64 %to to ptr
  %b = inttoptr i64 %from to ptr
  call void @llvm.memcpy.p0.p0.i64(ptr %a, ptr %b, i64 %n, i1 false)
  ret i64 0
}
define ptr @address() noinline {
  ret ptr @pick
}
define i64 @tripled(i64 %x) noinline {
  %y = mul i64 %x, 3
  ret i64 %y
}
define i64 @taken(i64 %x) {
  %same = select i1 true, ptr @tripled, ptr null
  %y = call i64 %same(i64 %x)
  ret i64 %y
}
define double @scaled(double %x) {
  %y = fmul double %x, 0x400921FB54442D18
  %z = fadd double %y, 0x3FD3333333333333
  ret double %z
}
"""


def strlen() -> int:
    return ctypes.cast(ctypes.CDLL(None).strlen, ctypes.c_void_p).value or 0


@pytest.fixture(scope="module")
def data() -> bytes:
    payload = toolchain._compile(TEXT, 2, toolchain.host_target(), False, {"strlen": strlen()})
    return payload[8:]


@pytest.fixture
def loaded(data: bytes) -> object_loader.LoadedObject:
    found = object_loader.load(data, {**toolchain._of_libc(), "strlen": strlen()})
    if found is None:
        pytest.skip("objects of this machine are LLVM's to load")
    return found


def call(code: object_loader.LoadedObject, name: str, *args: int) -> int:
    return ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(args))(code.address(name))(*args)


def test_x86_objects_are_loaded_here(data: bytes):
    found = object_loader.load(data, {**toolchain._of_libc(), "strlen": strlen()})
    assert (found is not None) == (sys.platform == "linux" and data[18] == 62)


def test_code_constants_variables_and_symbols(loaded: object_loader.LoadedObject):
    assert [call(loaded, "pick", k) for k in range(3)] == [15, 21, 33]
    assert [call(loaded, "zero", k) for k in range(4)] == [0] * 4
    assert [call(loaded, "count") for _ in range(3)] == [41, 42, 43]
    word = ctypes.create_string_buffer(b"tenferro" * 40)
    assert call(loaded, "length", ctypes.addressof(word)) == 320
    other = ctypes.create_string_buffer(321)
    call(loaded, "copy", ctypes.addressof(other), ctypes.addressof(word), 321)
    assert other.raw == word.raw
    scaled = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(loaded.address("scaled"))
    assert scaled(2.0) == 2.0 * 3.141592653589793 + 0.3


def test_bridges_lead_to_what_is_far(data: bytes, monkeypatch: pytest.MonkeyPatch):
    """What lies outside counts as too far away for a distance, whatever the system's layout of the process."""
    monkeypatch.setattr(object_loader, "_is_near", lambda distance: abs(distance) < 1 << 16)
    found = object_loader.load(data, {**toolchain._of_libc(), "strlen": strlen()})
    if found is None:
        pytest.skip("objects of this machine are LLVM's to load")
    word = ctypes.create_string_buffer(b"tenferro" * 40)
    assert call(found, "length", ctypes.addressof(word)) == 320
    assert [call(found, "pick", k) for k in range(3)] == [15, 21, 33]
    assert call(found, "taken", 7) == 21


def test_what_is_not_exported_has_no_address(loaded: object_loader.LoadedObject):
    assert loaded.address("inner") == loaded.address("strlen") == loaded.address("absent") == 0


def test_each_load_has_variables_of_its_own(data: bytes, loaded: object_loader.LoadedObject):
    again = object_loader.load(data, {**toolchain._of_libc(), "strlen": strlen()})
    assert again is not None
    assert (call(loaded, "count"), call(again, "count"), call(loaded, "count")) == (41, 41, 42)
    again.close()
    assert call(loaded, "count") == 43


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_has_variables_of_its_own(loaded: object_loader.LoadedObject):
    pid = os.fork()
    if pid == 0:
        call(loaded, "count")
        os._exit(0 if call(loaded, "count") == 42 else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert call(loaded, "count") == 41


def test_code_cannot_be_written(loaded: object_loader.LoadedObject):
    page = os.sysconf("SC_PAGE_SIZE")
    start = loaded.address("pick") // page * page
    with open("/proc/self/maps", encoding="utf-8") as file:
        spans = [line.split()[:2] for line in file]
    (rights,) = [r for span, r in spans if int(span.split("-")[0], 16) <= start < int(span.split("-")[1], 16)]
    assert rights.startswith("r-x")


def test_a_symbol_that_is_nowhere_is_refused(data: bytes):
    assert object_loader.load(data, toolchain._of_libc()) is None


def test_other_forms_are_refused(data: bytes):
    assert object_loader.load(b"", {}) is None
    assert object_loader.load(b"\xcf\xfa\xed\xfe" + bytes(100), {}) is None
    for place, value in ((18, 183), (16, 3), (4, 1)):  # AArch64; a shared library; 32 bits
        assert object_loader.load(data[:place] + bytes([value]) + data[place + 1 :], {}) is None


def test_relocations_of_another_kind_are_refused(data: bytes):
    """Whatever is not an absolute address of 64 bits is left to LLVM."""
    sections = object_loader._sections(data)
    changed = bytearray(data)
    for s in sections:
        if s.kind == 4 and not sections[s.target].name.startswith(".eh"):
            symbol = struct.unpack_from("<Q", data, s.at + 8)[0] >> 32
            struct.pack_into("<Q", changed, s.at + 8, symbol << 32 | 10)  # absolute, 32 bits
    assert object_loader.load(bytes(changed), {**toolchain._of_libc(), "strlen": strlen()}) is None


def test_both_loaders_give_the_same(monkeypatch: pytest.MonkeyPatch):
    own = compile_text(TEXT, 2, symbols={"strlen": strlen()})
    monkeypatch.setattr(object_loader, "load", lambda data, outside: None)
    llvms = compile_text(TEXT, 2, symbols={"strlen": strlen()})
    assert isinstance(llvms._engine, toolchain._Engine)
    for library in (own, llvms):
        assert call(library, "pick", 2) == 33  # type: ignore[arg-type]
        assert call(library, "count") == 41  # type: ignore[arg-type]


def test_a_process_that_finds_its_objects_loads_no_llvm(tmp_path):
    code = (
        "import sys, numpy as np, tenferro as tn\n"
        "f = tn.jit(lambda x: (np.tanh(x) * 2).sum())\n"
        "print(f(np.ones(9)), 'llvmlite.binding' in sys.modules)\n"
        "print('asm' if 'ret' in f.lower(np.ones(9)).as_text('asm') else '')"
    )
    environment = os.environ | {"TENFERRO_CACHE_DIR": str(tmp_path)}
    found = []
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
        found.append(done.stdout.split())
    first, second = found
    assert first[0] == second[0]
    assert first[1] == "True" and first[2] == second[2] == "asm"
    assert second[1] == str(sys.platform != "linux" or os.uname().machine != "x86_64")
