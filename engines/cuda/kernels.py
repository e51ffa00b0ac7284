"""The kernels of one executable: keys go in, loaded functions come out. What is new is compiled as one module."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tenferro.engines import recording
from tenferro.engines.cuda.device import Device
from tenferro.engines.cuda.launch import Device as Shape, KernelKey
from tenferro.engines.cuda.prelude import KernelText
from tenferro.lowering.region import Region
from tenferro.tracer.records import dataclass


@dataclass(frozen=True, slots=True)
class Loaded:
    """A kernel on the device: its functions, by entry."""

    functions: Mapping[str, Any]
    text: KernelText


class KernelTable:
    """Thread-safe. ``shape`` is what choices of schedules depend on."""

    def __init__(self, device: Device, shape: Shape | None = None, program: str = "") -> None:
        self.device = device
        self.program = program
        self.shape = shape or Shape(processors=device.processors)
        self.seconds = 0.0
        self._texts: dict[KernelKey, tuple[str, KernelText]] = {}
        self._lock = threading.Lock()

    def text(self, key: KernelKey, region: Region) -> KernelText:
        """The text of a kernel; written when it is first asked for."""
        with self._lock:
            found = self._texts.get(key)
            if found is None:
                found = self._texts[key] = (region.name, key.text(region))
            return found[1]

    def by_value(self, key: KernelKey, region: Region) -> bool:
        """Whether the kernel takes its words by value."""
        return self.text(key, region).by_value

    def load(self, wanted: Sequence[tuple[KernelKey, Region]]) -> tuple[Loaded, ...]:
        """These kernels, in order."""
        start, before = recording.now(), self.device.modules
        texts = [self.text(key, region) for key, region in wanted]
        began = time.perf_counter()
        functions = self.device.functions(texts) if texts else []
        self.seconds += time.perf_counter() - began
        if self.device.modules != before:
            names = ", ".join(dict.fromkeys(region.name for _, region in wanted))
            recording.compiled(start, self.program, names, -1, "compiled")
        return tuple(Loaded(f, t) for f, t in zip(functions, texts, strict=True))

    def named(self) -> list[tuple[str, KernelText]]:
        """Kernels under the name of the first region that they served."""
        with self._lock:
            return list(self._texts.values())
