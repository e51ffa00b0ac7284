"""Schedules as text and as pictures."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np

import tenferro as tn
from tenferro.runtime.drawing import Box, drawing
from tests.runtime.engines import several

SVG = "{http://www.w3.org/2000/svg}"


def scheduled():
    def f(a, b):
        with tn.on("cpu:1"):
            c = a * b
            d = a[b > 0]
        with tn.on("cpu:2"):
            e = c - d.sum()
        return e / d.shape[0] + c

    with several(3):
        return tn.jit(f).lower(np.ones(3), np.ones(3)).schedule


def test_text():
    lines = [re.sub(r" \(at .*?\)", "", line) for line in str(scheduled()).splitlines()]
    assert lines == [
        "schedule on cpu:0, cpu:1, cpu:2",
        "    0 cpu:1    operation  3 instructions (multiply, less, mask_select)",
        "    1 cpu:2    transfer   s4 cpu:1/host → cpu:2/host: 8*r2_0 bytes, read by sum  after 0",
        "    2 cpu:2    transfer   s2 cpu:1/host → cpu:2/host: 8*d0_0 bytes, read by subtract  after 0",
        "    3 cpu:2    operation  2 instructions (sum, subtract)  after 1, 2",
        "    4 cpu:0    transfer   s6 cpu:2/host → cpu:0/host: 8*d0_0 bytes, read by divide  after 3",
        "    5 cpu:0    transfer   s2 cpu:1/host → cpu:0/host: 8*d0_0 bytes, read by add  after 0",
        "    6 cpu:0    operation  2 instructions (divide, add)  after 4, 5",
    ]


def test_picture():
    schedule = scheduled()
    root = ElementTree.fromstring(schedule._repr_svg_())
    boxes = root.findall(f"{SVG}g")
    assert len(boxes) == len(schedule.nodes)
    arrows = [p for p in root.findall(f"{SVG}path") if "marker-end" in p.attrib]
    assert len(arrows) == sum(len(n.dependencies) for n in schedule.nodes)
    frames = [box.find(f"{SVG}rect") for box in boxes]
    corners = [(int(f.attrib["x"]), int(f.attrib["y"])) for f in frames if f is not None]
    for node, (x, y) in zip(schedule.nodes, corners, strict=True):
        assert x == 36 + 280 * node.engine
        assert all(corners[d][1] < y for d in node.dependencies)
    assert len(set(corners)) == len(corners)
    width, height = int(root.attrib["width"]), int(root.attrib["height"])
    assert all(0 <= x and x + 220 <= width and 0 <= y and y + 46 <= height for x, y in corners)
    texts = ["".join(box.itertext()) for box in boxes]
    assert "multiply, less, mask_select" in texts[0] and "s4 from cpu:1, 8*r2_0 bytes" in texts[1]


def test_an_empty_schedule_and_odd_names():
    assert ElementTree.fromstring(drawing(["cpu:0"], [])).findall(f"{SVG}g") == []
    picture = drawing(["a<b"], [Box(0, "operation", "x & y" * 20, "<&>", ())])
    (box,) = ElementTree.fromstring(picture).findall(f"{SVG}g")
    title, label = box.find(f"{SVG}title"), box.findall(f"{SVG}text")[1]
    assert title is not None and title.text == "<&>" and label.text is not None
    assert len(label.text) == 36 and label.text.endswith("…")
