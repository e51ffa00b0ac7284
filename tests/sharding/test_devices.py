"""Meshes of engines with memory of their own: they meet in the host's, and every way there is a transfer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.errors import NoEligibleEngineError
from tenferro.runtime import CollectiveNode
from tenferro.tracer.program import Operation, Params, SemanticProgram
from tests.runtime.devices import DeviceEngine, HostEngine, device_runtime, prepared_for
from tests.sharding.meshes import mesh, rows

P = tn.P


def moved(program: SemanticProgram, places: dict[str, str]) -> SemanticProgram:
    """The program for other engines."""

    def operation(o: Operation) -> Operation:
        params = {k: tuple(places[p] for p in v) if k == "places" else v for k, v in o.params.items()}
        return replace(o, place=places.get(o.place, o.place), params=Params(**params))

    return replace(program, operations=tuple(map(operation, program.operations)))


def centred(v: Any) -> Any:
    return v - tn.pmean(v.mean(), "i"), tn.psum(v.max(), "i")


@pytest.mark.parametrize("second", ["device:1", "reference:0"])
def test_devices_meet_on_the_host(second: str) -> None:
    x = rows(6)
    sharded = tn.shard_map(centred, mesh(2), P("i"), (P("i"), P()))
    expected = tn.shard_map(centred, mesh(2), P("i"), (P("i"), P()))(x)
    program = moved(sharded.trace(x), {"cpu:0": "device:0", "cpu:1": second})
    engines = [HostEngine(), DeviceEngine("device:0"), DeviceEngine("device:1")]
    runtime = device_runtime(*engines)
    prepared = prepared_for(runtime, program, *engines)
    meetings = [n for n in prepared.schedule.nodes if isinstance(n, CollectiveNode)]
    assert [n.places for n in meetings] == [(0, 0), (0, 0)]
    found = runtime.run(engines, prepared, [x]).outputs
    for actual, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-12)
    to_host = [t for t in prepared.schedule.transfers if t.destination.engine == "reference:0"]
    assert {t.source.engine for t in to_host} == {"device:0", second} - {"reference:0"}


def test_without_a_host_they_cannot_meet() -> None:
    program = tn.shard_map(lambda v: tn.psum(v, "i"), mesh(1), P("i"), P()).trace(rows(4))
    engine = DeviceEngine("device:0")
    with pytest.raises(NoEligibleEngineError, match=r"^all_reduce: device:0 has memory of its own.*test_devices.py"):
        prepared_for(device_runtime(HostEngine(), engine), moved(program, {"cpu:0": "device:0"}), engine)
