"""What can go wrong with runtimes, by kind. Each derives from what a caller would catch who knows nothing of us."""

from __future__ import annotations

from tenferro.tracer.errors import LoweringError, TenferroError


class ConfigurationError(TenferroError, ValueError):
    """A runtime's configuration is refused: a name that is none, an engine twice, no engine at all."""


class ConcurrentReconfigurationError(LoweringError):
    """Another thread has reconfigured meanwhile; nothing was changed."""


class PrepareError(LoweringError):
    """A program cannot be prepared as asked."""


class UnknownEngineError(PrepareError, LookupError):
    """No engine of this name is registered."""


class TargetError(PrepareError):
    """Targets are none, twice the same, or not what is registered under their name."""


class NoEligibleEngineError(PrepareError):
    """No target can run an operation."""


class NoExecutableEngineError(PrepareError):
    """The engine that was chosen only prepares; it cannot run."""


class InputIngressError(PrepareError):
    """An input cannot enter any engine that would use it."""


class MissingTransferError(PrepareError):
    """No transfer is registered between two engines that a value would have to cross."""


class MissingExtensionError(PrepareError):
    """An operation belongs to a family that the runtime does not have, or not for this engine."""


class PlacementBudgetError(PrepareError):
    """The placement search has tried as often as it may."""


class TransferBudgetError(PrepareError):
    """More bytes would cross between engines than ``max_transfer_bytes`` allows."""


class CapacityError(PrepareError):
    """As many preparations run and wait as may, or one was to be refused rather than wait."""


class RecursionRefusedError(PrepareError, RecursionError):
    """A preparation was asked for from inside a preparation."""


class ProviderContractError(LoweringError):
    """A provider broke its contract: what an executor returned is not what its family declares, an engine compiled no
    executable."""


class RunError(LoweringError):
    """A prepared program cannot run as asked."""


class StaleError(RunError):
    """The runtime was reconfigured since the program was prepared."""


class WrongRuntimeError(RunError):
    """The program was prepared by another runtime."""


class EngineMismatchError(RunError):
    """The engines given are not those that the program was prepared for."""


class BrokenEngineError(RunError):
    """Native code failed under the engine; it runs nothing any more."""


class InputError(RunError, TypeError):
    """Inputs are too many, too few, or not arrays and ints."""


class GuardError(RunError, ValueError):
    """The inputs' sizes are not those that the program was traced for."""


class ArrivalError(RunError):
    """What arrived is not what was sent: residency, dtype, shape or length."""


class EventError(RunError):
    """An event domain was used against its rules: another domain's dependency or token, a run that has ended."""


class EngineFailure(Exception):
    """Raised by an engine or an executor under which native code has failed: the engine is broken from then on.

    ``engine_id``: the engine that broke, where it may not be the one whose work was being done (a transfer)."""

    def __init__(self, text: str, engine_id: str = "") -> None:
        super().__init__(text)
        self.engine_id = engine_id
