"""What a preparation may be asked for beside the program itself."""

from __future__ import annotations

from typing import Literal

from tenferro.engines.errors import ConfigurationError
from tenferro.runtime.identity import check_number
from tenferro.tracer.records import dataclass

MAX_PLACEMENTS = 4096


@dataclass(frozen=True, slots=True)
class Policy:
    """A runtime's standing orders. ``max_transfer_bytes``: what may cross between engines in one run (None: any
    amount). ``max_placements``: how many placements the search may try."""

    max_transfer_bytes: int | None = None
    max_placements: int = MAX_PLACEMENTS

    def __post_init__(self) -> None:
        if self.max_transfer_bytes is not None:
            check_number("policy", "max_transfer_bytes", self.max_transfer_bytes, 0)
        check_number("policy", "max_placements", self.max_placements, 1)


@dataclass(frozen=True, slots=True)
class PrepareOptions:
    """For one preparation. ``max_transfer_bytes`` and ``max_placements``: instead of the policy's, where given.
    ``storage``: the storage class that every value must lie in. ``results``: the engine whose memory outputs are to lie
    in; where they are made, if empty. ``in_flight``: what to do where the cache already makes as many programs as it
    may; it is no part of a program's identity."""

    max_transfer_bytes: int | None = None
    max_placements: int | None = None
    storage: str | None = None
    results: str = ""
    in_flight: Literal["wait", "refuse"] = "wait"

    def __post_init__(self) -> None:
        if self.in_flight not in ("wait", "refuse"):
            raise ConfigurationError(f"prepare: in_flight is {self.in_flight!r}; 'wait' or 'refuse' is needed")

    def under(self, policy: Policy) -> Policy:
        """The policy with what is given here in place of its own."""
        bytes_allowed, placements = self.max_transfer_bytes, self.max_placements
        return Policy(
            policy.max_transfer_bytes if bytes_allowed is None else bytes_allowed,
            policy.max_placements if placements is None else placements,
        )


DEFAULT = PrepareOptions()
