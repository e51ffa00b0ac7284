"""Transfers: values cross between registered endpoints only, are listed beforehand, and looked at on arrival."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tenferro.engines.engine import Engine
from tenferro.engines.errors import ArrivalError
from tenferro.runtime.identity import checked_name
from tenferro.tracer.dims import Environment, Extent, evaluate, leaves
from tenferro.tracer.lines import SourceLine
from tenferro.tracer.records import dataclass


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An engine and one of its kinds of memory."""

    engine: str
    storage: str

    def __post_init__(self) -> None:
        checked_name("engine", self.engine)
        checked_name("storage class", self.storage)

    def __str__(self) -> str:
        return f"{self.engine}/{self.storage}"


class TransferProvider(ABC):
    """Brings a value from one endpoint to another."""

    @abstractmethod
    def transfer(self, value: Any, source: Engine, destination: Engine) -> Any:
        """The value where ``destination`` can use it; returns when it is there. It may share memory with ``value``
        where both engines reach that memory."""


class SharedMemory(TransferProvider):
    """Between engines of one process's memory: the value itself. Nothing is copied; programs never write what they
    have been given."""

    def transfer(self, value: Any, source: Engine, destination: Engine) -> Any:
        return value


class Upload(TransferProvider):
    """From the process's memory to a device's."""

    def transfer(self, value: Any, source: Engine, destination: Engine) -> Any:
        return destination.receive(value)


class Download(TransferProvider):
    """From a device's memory to the process's."""

    def transfer(self, value: Any, source: Engine, destination: Engine) -> Any:
        return source.fetch(value)


class ThroughHost(TransferProvider):
    """Between the memories of two devices, by way of the process's."""

    def transfer(self, value: Any, source: Engine, destination: Engine) -> Any:
        return destination.receive(source.fetch(value))


Routes = Mapping[tuple[Endpoint, Endpoint], TransferProvider]


@dataclass(frozen=True, slots=True)
class Transfer:
    """One crossing of a schedule. ``bytes``: an expression of the program's sizes."""

    slot: int
    source: Endpoint
    destination: Endpoint
    bytes: Extent
    reason: str
    line: SourceLine | None

    def __str__(self) -> str:
        where = f" (at {self.line})" if self.line else ""
        return f"s{self.slot} {self.source} → {self.destination}: {self.bytes} bytes, {self.reason}{where}"


def arrived(transfer: Transfer, sent: np.ndarray[Any, Any], got: Any, destination: Engine) -> Any:
    """``got``, if it is what was sent; ArrivalError otherwise."""

    def refuse(what: str, found: object, needed: object) -> ArrivalError:
        return ArrivalError(
            f"transfer: s{transfer.slot} arrived on {destination.id} with {what} {found}; {needed} sent"
        )

    if not destination.holds(got):
        raise ArrivalError(f"transfer: s{transfer.slot} is not on {destination.id} after its transfer")
    if got.dtype != sent.dtype:
        raise refuse("dtype", got.dtype, sent.dtype)
    if got.shape != sent.shape:
        raise refuse("shape", got.shape, sent.shape)
    if got.nbytes != sent.nbytes:
        raise refuse("length", got.nbytes, sent.nbytes)
    return got


def known_bytes(transfers: Sequence[Transfer], env: Environment) -> int:
    """What crosses in a run of these sizes; transfers of a size that only the run tells are left out."""
    return sum(evaluate(t.bytes, env) for t in transfers if all(x in env for x in leaves(t.bytes)))
