"""What is made of a profile: its table and text, the file for Chrome, pictures; and profiles of several engines."""

from __future__ import annotations

import gc
import json
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import tenferro as tn
from tenferro import profile_drawing, profile_rows
from tenferro.engines import recording
from tenferro.engines.cpu import bandwidth, memory
from tenferro.engines.engine import RunResult
from tenferro.engines.recording import Launch, MemorySample, Recorder
from tenferro.profile_rows import Row
from tenferro.profiling import Profile
from tenferro.tracer.lines import SourceLine

N = 200_000
X = np.arange(float(N))
SVG = "{http://www.w3.org/2000/svg}"


@tn.jit
def layer(a):
    b = np.exp(a / a.sum())
    return np.sort(b) - 1.0


@pytest.fixture(scope="module")
def p() -> Profile:
    """Three calls, the trace among them, and an eager operation."""
    with tn.profile() as found:
        for _ in range(3):
            layer(X)
        tn.asarray(X) * 2.0
    return found


@pytest.fixture(autouse=True)
def _known_bandwidth(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of this machine takes time to measure; its test does."""
    monkeypatch.setattr(bandwidth, "copy_rate", lambda: 10e9)


# -- table and text ----------------------------------------------------------------------------------------------------


def test_rows_add_events_up(p: Profile):
    table = p.table()
    assert [(r.kind, r.program, r.name, r.calls) for r in sorted(table, key=lambda r: (r.kind, r.program, r.name))] == [
        ("region", "layer", "r0", 3), ("region", "layer", "r1", 3), ("region", "multiply", "r0", 1),
        ("seam", "layer", "sort", 3),
    ]  # fmt: skip
    assert [r.kind for r in table] == ["region"] * 3 + ["seam"]
    regions = table[:3]
    assert [r.ms for r in regions] == sorted([r.ms for r in regions], reverse=True)
    assert sum(r.ms for r in regions) == pytest.approx(sum(e.ms for e in p.launches))
    for row in table:
        assert row.share == pytest.approx(row.ms / p.ms) and 0 < row.share < 1
        assert row.gb_per_second == pytest.approx((row.read + row.written) / (row.ms * 1e-3) / 1e9)
        assert row.bandwidth == pytest.approx(row.gb_per_second / 10)
    for e in p.launches:
        assert e.gb_per_second == pytest.approx((e.read + e.written) / (e.ms * 1e6))
        assert e.bandwidth == pytest.approx(e.gb_per_second / 10)
    last = next(r for r in table if r.name == "r1")
    assert (last.read, last.written) == (3 * 8 * N, 3 * 8 * N)


def test_the_text_has_a_line_for_each_row(p: Profile):
    text = str(p)
    assert repr(p) == text
    parts = r"kernels \d+ %, seams \d+ %, traces \d+ %, preparation \d+ %, "
    assert re.match(rf"profile: \d+\.\d{{3}} ms( on \d threads)?: {parts}", text)
    head, *rows = text.split("\n\n")[1].splitlines()
    assert re.fullmatch(r"region +calls +total +time +moved +bandwidth  line", head)
    number, name = r" +\d+\.\d{3} ms +\d+ % +\d+\.\d GB/s +\d+ %  ", Path(__file__).name
    assert len(rows) == 3
    assert any(re.fullmatch(rf"layer r0 +3{number}\S*{name}:\d+", r) for r in rows)
    seams = text.split("\n\n")[2].splitlines()
    assert re.fullmatch(rf"layer sort +3{number}\S*{name}:\d+", seams[1])
    assert all(line == line.rstrip() for line in text.splitlines())
    ends = {r.index(" ms") for r in rows}
    assert len(ends) == 1  # numbers stand below each other


def test_a_row_has_its_own_time_without_that_of_rows_inside_of_it():
    @tn.jit
    def loop(x):
        return tn.lax.scan(lambda c, v: (np.sort(np.cumsum(c * v)), None), x, x[:5])[0]

    loop(X)
    with tn.profile() as p:
        loop(X)
    found = {r.name: r for r in p.table()}
    scan, sort = found["scan"], found["sort"]
    assert sort.calls == 5 and sort.ms == sort.whole_ms == pytest.approx(sum(e.ms for e in p.seams if e.name == "sort"))
    inside = [e for e in (*p.launches, *p.seams) if e.program != "loop" or getattr(e, "name", "") != "scan"]
    assert scan.whole_ms - scan.ms == pytest.approx(sum(e.ms for e in inside))
    assert sum(r.share for r in p.table()) <= 1
    percents = [int(n) for n in re.findall(r"(\d+) %", str(p).splitlines()[0])]
    assert sum(percents) <= 100 + len(percents)  # rounded


def made_row(k: int) -> Launch:
    return Launch(1000 * k, 1000 * k + 1000 - k, 1, f"f{k}", "cpu:0", "r0", "row", 0, (), 8, 8, 1)


def test_long_tables_are_cut_and_say_so():
    many = [made_row(k) for k in range(100)]
    (table,) = profile_rows.tables(many, 1.0)
    assert len(table.rows) == profile_rows.MOST_ROWS
    left = sum(e.ms for e in many[profile_rows.MOST_ROWS :])
    assert table.note == f"and 60 more: {left:.3f} ms"
    assert profile_rows.text_of(table).endswith(table.note)
    assert len(profile_rows.rows(many, 1.0)) == 100


def test_lines_are_short():
    where, here = profile_rows.where, os.getcwd()
    assert where([SourceLine("/a/b.py", 7), SourceLine("/a/b.py", 3), SourceLine("/a/b.py", 5)]) == "/a/b.py:3-7"
    assert where([SourceLine(f"{here}/b.py", 7), SourceLine("c.py", 1)]) == "b.py:7, c.py:1"
    assert where([]) == ""


def test_a_row_without_time_has_no_rate():
    row = Row("region", "f", "r0", "cpu:0", (), 1, 0.0, 0.0, 8, 8, 0.0)
    assert row.gb_per_second == row.bandwidth == 0


def test_the_bandwidth_is_measured_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.undo()
    monkeypatch.setattr(bandwidth, "COPIED", 4 << 20)
    bandwidth.copy_rate.cache_clear()
    try:
        rate = bandwidth.copy_rate()
        assert 1e8 < rate < 1e14
        assert bandwidth.copy_rate() is rate
        assert threading.active_count() < 100
    finally:
        bandwidth.copy_rate.cache_clear()


def test_the_bandwidth_is_not_measured_before_it_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def refuse() -> float:
        raise AssertionError("measured")

    monkeypatch.setattr(bandwidth, "copy_rate", refuse)
    with tn.profile() as p:
        layer(X)
    assert p.table() and p.events
    p.save(tmp_path / "trace.json")
    with pytest.raises(AssertionError, match="measured"):
        str(p)


# -- Chrome's trace format ---------------------------------------------------------------------------------------------


def test_the_file_has_the_fields_of_the_format(p: Profile, tmp_path: Path):
    path = tmp_path / "trace.json"
    p.save(str(path))
    made = json.loads(path.read_text())
    assert set(made) == {"traceEvents", "displayTimeUnit"} and made["displayTimeUnit"] == "ms"
    for event in made["traceEvents"]:
        assert {"name", "ph", "ts", "pid", "tid", "args"} <= set(event)
        assert isinstance(event["name"], str) and event["name"]
        assert event["ph"] in {"X", "C", "M"}
        assert isinstance(event["ts"], float) and event["ts"] >= 0
        assert event["pid"] == os.getpid() and type(event["tid"]) is int
        assert isinstance(event["args"], dict)
        if event["ph"] == "X":
            assert isinstance(event["dur"], float) and event["dur"] >= 0 and isinstance(event["cat"], str)
            assert event["ts"] + event["dur"] <= p.ms * 1e3 + 1
        else:
            assert "dur" not in event
        if event["ph"] == "C":
            assert [type(v) for v in event["args"].values()] == [int]


def test_the_file_holds_every_event(p: Profile, tmp_path: Path):
    p.save(tmp_path / "trace.json")
    made = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    complete = [e for e in made if e["ph"] == "X"]
    assert len(complete) == len(p.events)
    assert [e["cat"] for e in complete] == [type(e).__name__.lower() for e in p.events]
    launches = [e for e in complete if e["cat"] == "launch"]
    assert [e["dur"] for e in launches] == [(e.end - e.start) / 1e3 for e in p.launches]
    first = next(e for e in launches if e["name"] == "layer r1")
    assert first["args"]["read"] == 8 * N and first["args"]["entry"] == "row" and "GB/s" in first["args"]
    assert re.search(r":\d+$", first["args"]["lines"])
    assert len([e for e in made if e["ph"] == "C"]) == len(p.memory)
    names = {e["tid"]: e["args"]["name"] for e in made if e["name"] == "thread_name"}
    assert names == p.threads


def test_events_of_a_thread_lie_inside_each_other_or_apart(p: Profile):
    """As viewers need it."""
    for thread in p.threads:
        open_events: list[Any] = []
        for event in (e for e in p.events if e.thread == thread):
            while open_events and open_events[-1].end <= event.start:
                open_events.pop()
            assert not open_events or event.end <= open_events[-1].end
            open_events.append(event)


def test_an_empty_profile_is_a_file_too(tmp_path: Path):
    for k, q in enumerate((Profile(), tn.profile())):
        q.save(tmp_path / f"{k}.json")
        (only,) = json.loads((tmp_path / f"{k}.json").read_text())["traceEvents"]
        assert only["ph"] == "M"


def test_a_file_that_cannot_be_written(p: Profile, tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        p.save(tmp_path / "no" / "trace.json")


# -- pictures ----------------------------------------------------------------------------------------------------------


def pictures(html: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(text) for text in re.findall(r"<svg.*?</svg>", html, re.DOTALL)]


def test_notebooks_show_a_timeline_and_the_memory():
    g = tn.jit(lambda a: np.exp(a) + 1)
    with tn.profile() as q:
        kept = [g(X), g(X)]
    html = q._repr_html_()
    ElementTree.fromstring(html)  # well-formed, and names like <lambda> are escaped
    timeline, memory = pictures(html)
    tips = [t.text or "" for t in timeline.iter(f"{SVG}title")]
    assert len(tips) == len(q.events)
    assert sum(t.startswith("<lambda> r0: ") and "read 1600000" in t for t in tips) == 2
    for mark in timeline.iter(f"{SVG}g"):
        rect = mark.find(f"{SVG}rect")
        assert rect is not None
        x, width = float(rect.attrib["x"]), float(rect.attrib["width"])
        assert profile_drawing.NAMES <= x and x + width <= profile_drawing.WIDTH and width > 0
    texts = [t.text for t in timeline.iter(f"{SVG}text")]
    assert threading.current_thread().name in texts and {"launch", "run", "trace"} <= set(texts)
    assert any((t.text or "").startswith("most: ") for t in memory.iter(f"{SVG}text"))
    assert len(kept) == 2


def test_the_shortest_events_of_many_are_left_out():
    events = [made_row(k) for k in range(profile_drawing.MOST_MARKS + 5)]
    text = profile_drawing.timeline(events, {1: "main"}, 0, 4000)
    assert "the 5 shortest events are not drawn" in text
    assert text.count("<title>") == profile_drawing.MOST_MARKS


def test_many_samples_keep_their_peaks():
    samples = [MemorySample(k, 7 if k == 5555 else 1) for k in range(20_000)]
    thinned = list(profile_drawing._thinned(samples))
    assert len(thinned) <= profile_drawing.MOST_MARKS and max(s.live for s in thinned) == 7
    ElementTree.fromstring(profile_drawing.memory(samples, 0, 20_000))
    ElementTree.fromstring(profile_drawing.memory([], 0, 1))


def test_live_memory_rises_and_falls():
    f = tn.jit(lambda a: a + 1.0)
    f(X)
    gc.collect()  # what other tests left would die at any time,
    memory.trim()  # and be used again where it is a little too large
    with tn.profile() as q:
        kept = [f(X) for _ in range(4)]
        del kept
        f(X)
    live = [s.live for s in q.memory]
    at_launches = [next(s.live for s in q.memory if s.time == e.start) for e in q.launches]
    size = 8 * N
    assert len(at_launches) == 5
    for before, after in zip(at_launches[:3], at_launches[1:4], strict=True):
        assert size <= after - before < 1.2 * size
    assert at_launches[4] < at_launches[1]
    assert live[-1] <= live[0] + 1.2 * size
    assert [s.time for s in q.memory] == sorted(s.time for s in q.memory)


# -- several engines ---------------------------------------------------------------------------------------------------


@pytest.fixture
def two() -> Iterator[list[str]]:
    yield [e.id for e in tn.cpu_engines(2)]


def test_parts_and_transfers_of_two_engines(two: list[str]):
    @tn.jit(engines=two)
    def f(a):
        b = np.cos(a)
        with tn.on(two[1]):
            c = np.sin(a)
        return b + c

    f(X)
    with tn.profile() as q:
        result = f(X)
    assert np.allclose(result, np.cos(X) + np.sin(X))
    assert sorted((e.program, e.engine) for e in q.launches) == [("f", two[0]), ("f", two[0]), ("f", two[1])]
    whole = next(r for r in q.runs if r.engine == "cpu:0, cpu:1")
    assert all(whole.start <= e.start and e.end <= whole.end for e in q.events)
    assert {q.threads[e.thread] for e in q.launches} >= {f"tenferro-{two[1]}"}
    (moved,) = q.transfers
    assert (moved.program, moved.source, moved.destination, moved.bytes) == ("f", two[1], two[0], 8 * N)
    assert moved.reason == "read by add" and moved.line is not None
    text = str(q)
    assert re.search(r"^cpu:1 → cpu:0 +1  1,600,000 bytes  ", text, re.MULTILINE)
    assert re.search(r"^f \S+ on cpu:1 ", text, re.MULTILINE)


def test_an_array_that_is_brought_to_another_engine(two: list[str]):
    a = tn.asarray(X)
    with tn.profile() as q:
        b = a.to(two[1])
        assert b.to(two[1]) is b
    (moved,) = q.transfers
    assert (moved.source, moved.destination, moved.bytes, moved.reason) == ("cpu:0", "cpu:1", 8 * N, "to")
    assert moved.line is not None and moved.line.file == __file__


def test_a_collective_is_a_seam(two: list[str]):
    mesh = tn.Mesh(np.array(two), ("i",))
    f = tn.jit(tn.shard_map(lambda a: tn.psum(a.sum(), "i"), mesh, in_specs=tn.P("i"), out_specs=tn.P()))
    f(X)
    with tn.profile() as q:
        result = f(X)
    assert float(result) == X.sum()
    (seam,) = q.seams
    assert (seam.name, seam.engine, seam.read, seam.written) == ("all_reduce", "cpu:0", 16, 16)
    assert seam.line is not None and seam.line.file == __file__


def test_a_recorder_takes_no_event_from_before_it():
    recorder = Recorder()
    recorder.begin()
    recorder.take(made_row(0))
    recorder.end()
    recorder.take(made_row(1 << 62))
    assert recorder.events == []


def test_a_program_that_runs_inside_another_gives_its_name_back():
    names = []

    def run(inner: str) -> RunResult:
        names.append(recording.running("own"))
        if inner:
            recording.recorded_call(lambda: run(""), "cpu:0", inner, [])
            names.append(recording.running("own"))
        return RunResult([])

    recording.recorded_call(lambda: run("inner"), "cpu:0", "outer", [])
    assert [*names, recording.running("own")] == ["outer", "inner", "outer", "own"]
