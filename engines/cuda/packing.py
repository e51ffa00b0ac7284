"""A device array with strides goes in, a C-ordered copy on the same device comes out: one kernel."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from tenferro.engines.cpu.layout import Strided, contiguous
from tenferro.engines.cpu.slabs import copy_region
from tenferro.engines.cuda.arrays import DeviceArray
from tenferro.engines.cuda.device import ALIGNMENT
from tenferro.engines.cuda.launch import Device as Shape, bind_region

if TYPE_CHECKING:
    from tenferro.engines.cuda.engine import CudaEngine

SOURCE, TARGET = 0, 1


def pack(engine: CudaEngine, x: DeviceArray) -> DeviceArray:
    """The copy, submitted to the engine's stream; the caller holds the engine."""
    device, stream = engine.device, engine.stream
    strides = contiguous(x.shape, x.itemsize)
    made = DeviceArray(engine, engine.allocate(x.nbytes, "a copy in C order"), 0, x.shape, strides, x.dtype)
    prototype = copy_region(x.dtype, x.ndim)
    region = dataclasses.replace(
        prototype, space=x.shape, stores=(dataclasses.replace(prototype.stores[0], slot=TARGET),)
    )
    slots = {SOURCE: x.strided, TARGET: Strided(0, x.shape, strides)}
    itemsizes = dict.fromkeys(slots, x.itemsize)
    alignment = {SOURCE: x.alignment, TARGET: ALIGNMENT}
    shape = engine.shape or Shape(processors=device.processors)
    bound = bind_region(region, slots, itemsizes, alignment, {}, shape)
    if bound is None:
        return made
    (functions,) = device.functions([bound.key.text(region)])
    addresses = (x.address, made.address)
    for launch in bound.launches:
        words = np.array(launch.words, np.int64)
        for word, slot, offset in bound.pointers:
            words[word] = addresses[slot] + offset
        device.launch(functions[launch.entry], launch.grid, launch.block, launch.shared, words, stream)
    return made
