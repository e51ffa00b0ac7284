"""Configurations: one that may be edited, and the immutable one that is in force."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from types import MappingProxyType

from tenferro.engines.engine import Engine
from tenferro.engines.errors import ConfigurationError
from tenferro.runtime.extensions import ExtensionModule, Families
from tenferro.runtime.identity import checked_name
from tenferro.runtime.options import Policy
from tenferro.runtime.transfers import Download, Endpoint, Routes, SharedMemory, ThroughHost, TransferProvider, Upload
from tenferro.tracer.records import dataclass

_SHARED, _UPLOAD, _DOWNLOAD, _THROUGH = SharedMemory(), Upload(), Download(), ThroughHost()


@dataclass(frozen=True, slots=True)
class Registration:
    """An engine under an identity of its own: registering the same name again is another registration."""

    engine: Engine
    identity: int


@dataclass
class Configuration:
    """A copy to edit (``Runtime.reconfigure``, ``Runtime.builder``). ``engines`` may be changed like any list."""

    engines: list[Engine] = field(default_factory=list)
    modules: list[ExtensionModule] = field(default_factory=list)
    transfers: dict[tuple[Endpoint, Endpoint], TransferProvider] = field(default_factory=dict)
    policy: Policy = Policy()

    def register_engine(self, engine: Engine) -> None:
        """Add an engine. ConfigurationError if its id is taken or no name."""
        checked_name("engine", engine.id)
        if any(e.id == engine.id for e in self.engines):
            raise ConfigurationError(f"register_engine: id {engine.id!r} is registered already; ids must differ")
        self.engines.append(engine)

    def remove_engine(self, engine_id: str) -> None:
        """Take an engine out. ConfigurationError where none has this id."""
        kept = [e for e in self.engines if e.id != engine_id]
        if len(kept) == len(self.engines):
            raise ConfigurationError(f"remove_engine: no engine has the id {engine_id!r}")
        self.engines[:] = kept

    def install_extension(self, module: ExtensionModule) -> None:
        """Add a module's families. ConfigurationError if one of them is installed already."""
        Families([*self.modules, module])  # refuses a family that comes twice
        self.modules.append(module)

    def register_transfer(self, source: Endpoint, destination: Endpoint, provider: TransferProvider) -> None:
        """Let values cross from one endpoint to another. ConfigurationError for a route that is registered."""
        if source == destination:
            raise ConfigurationError(f"register_transfer: {source} is both ends; two endpoints are needed")
        if (source, destination) in self.transfers:
            raise ConfigurationError(f"register_transfer: {source} to {destination} is registered already")
        self.transfers[source, destination] = provider

    def frozen(self, before: Snapshot, identities: Iterator[int]) -> Snapshot:
        """The snapshot after ``before``: ``before`` itself where nothing has changed. ConfigurationError for no engine,
        or two of one id."""
        if not self.engines or len({e.id for e in self.engines}) != len(self.engines):
            raise ConfigurationError("runtime: engines must be at least one, with ids that differ")
        for engine in self.engines:
            checked_name("engine", engine.id)
        kept = {id(r.engine): r for r in before.registrations}
        registrations = tuple(kept.get(id(e)) or Registration(e, next(identities)) for e in self.engines)
        same_modules = self.modules == list(before.families.modules)
        families = before.families if same_modules else Families(self.modules)
        transfers = MappingProxyType(dict(self.transfers))
        if (
            registrations == before.registrations
            and same_modules
            and transfers == before.transfers
            and self.policy == before.policy
        ):
            return before
        return Snapshot(before.epoch + 1, registrations, families, transfers, self.policy)


@dataclass(frozen=True)
class Snapshot:
    """One configuration. It never changes; readers need no lock."""

    epoch: int
    registrations: tuple[Registration, ...]
    families: Families
    transfers: Routes
    policy: Policy

    @classmethod
    def empty(cls) -> Snapshot:
        """What the first configuration comes after."""
        return cls(0, (), Families(), MappingProxyType({}), Policy())

    def find(self, engine_id: str) -> Registration | None:
        """The registration of this name."""
        return next((r for r in self.registrations if r.engine.id == engine_id), None)

    def thawed(self) -> Configuration:
        """A copy to edit."""
        return Configuration(
            [r.engine for r in self.registrations], list(self.families.modules), dict(self.transfers), self.policy
        )

    def routes(self) -> Routes:
        """The registered transfers, and those that come of themselves: between engines of the process's own memory, and
        to and from engines that carry their values themselves."""
        found: dict[tuple[Endpoint, Endpoint], TransferProvider] = {}
        engines = [r.engine for r in self.registrations]
        hosts = [Endpoint(e.id, "host") for e in engines if "host" in e.storage_classes]
        remote = [Endpoint(e.id, e.storage_classes[0]) for e in engines if e.carries]
        for a in hosts:
            found.update(((a, b), _SHARED) for b in hosts if a != b)
            found.update(((a, b), _UPLOAD) for b in remote)
            found.update(((b, a), _DOWNLOAD) for b in remote)
        for a in remote:
            found.update(((a, b), _THROUGH) for b in remote if a != b)
        return {**found, **self.transfers}
