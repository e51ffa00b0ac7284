"""Preparation: a program and target engines go in, a schedule with an executable for each part comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenferro.engines import recording
from tenferro.engines.engine import Engine, Executable
from tenferro.engines.errors import ProviderContractError, TargetError, TransferBudgetError
from tenferro.lowering import staged
from tenferro.lowering.exec_program import ExecProgram
from tenferro.lowering.fusion import plan
from tenferro.lowering.partition import is_collective
from tenferro.lowering.plan import Plan
from tenferro.runtime.options import Policy, PrepareOptions
from tenferro.runtime.placement import candidates, search
from tenferro.runtime.prepared import InputSignature, Prepared, target_of
from tenferro.runtime.schedule import Builder, OperationNode, Schedule, flat
from tenferro.runtime.snapshot import Snapshot
from tenferro.tracer.config import Config
from tenferro.tracer.program import SemanticProgram


def prepare(
    runtime_id: int,
    snapshot: Snapshot,
    program: SemanticProgram,
    inputs: InputSignature,
    engines: Sequence[Engine],
    policy: Policy,
    options: PrepareOptions,
    settings: Config,
) -> Prepared:
    """Lower, place, schedule, compile."""
    start = recording.now()
    instructions = staged(program, settings)
    held, results = _ends(instructions, inputs, engines, options)
    schedule = _schedule(instructions, snapshot, engines, policy, options.storage, held, results)
    known = [t.bytes for t in schedule.transfers if isinstance(t.bytes, int)]
    if policy.max_transfer_bytes is not None and sum(known) > policy.max_transfer_bytes:
        raise TransferBudgetError(
            f"prepare: {sum(known)} bytes cross between engines; {policy.max_transfer_bytes} are allowed: "
            + "; ".join(str(t) for t in schedule.transfers)
        )
    plans: list[Plan | None] = []
    units: list[Executable | None] = []
    for number, node in enumerate(schedule.nodes):
        prefix = "" if schedule.is_flat else f"p{number}."
        made = plan(node.part.program, prefix) if isinstance(node, OperationNode) else None
        plans.append(made)
        units.append(None if made is None else _compiled(made, engines[node.engine], snapshot))
    targets = tuple(target_of(e) for e in engines)
    recording.prepared(start, program.name, len(program.operations))
    return Prepared(
        runtime_id, snapshot.epoch, program, instructions, inputs, targets, policy, schedule, tuple(plans), tuple(units)
    )


def _compiled(made: Plan, engine: Engine, snapshot: Snapshot) -> Executable:
    unit = engine.compile(made, snapshot.families.executors(made, engine))
    if not isinstance(unit, Executable):
        raise ProviderContractError(
            f"prepare: engine {engine.id!r} compiled a {type(unit).__name__}; an Executable is needed"
        )
    return unit


def _ends(
    program: ExecProgram, inputs: InputSignature, engines: Sequence[Engine], options: PrepareOptions
) -> tuple[dict[int, int], int | None]:
    """Where inputs lie that are on no host, by slot, and where outputs are to lie; as numbers of targets."""
    ids = {e.id: k for k, e in enumerate(engines)}
    for what, name in (*(("inputs", i.place) for i in inputs), ("results", options.results)):
        if name and name not in ids:
            raise TargetError(f"prepare: {what} on {name}; targets are {', '.join(ids)}")
    held = {i.slot.index: ids[t.place] for i, t in zip(program.inputs, inputs, strict=True) if t.place}
    return held, ids[options.results] if options.results else None


def _schedule(
    program: ExecProgram,
    snapshot: Snapshot,
    engines: Sequence[Engine],
    policy: Policy,
    storage: str | None,
    held: Mapping[int, int],
    results: int | None,
) -> Schedule:
    choices = candidates(program, engines, snapshot.families, storage)
    enters = all(held[s] == 0 if (s := i.slot.index) in held else engines[0].accepts(i.type) for i in program.inputs)
    anywhere = not any(i.place or is_collective(i) for i in program.instructions)
    if enters and anywhere and results in (None, 0) and all(0 in c for c in choices):
        return flat(program, engines, 0)
    routes = snapshot.routes()

    def route(placement: Sequence[int]) -> Schedule:
        return Builder(program, engines, placement, routes, held, results).build()

    return search(choices, len(engines), policy.max_placements, route)
