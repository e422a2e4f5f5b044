"""What is tuned: the nouns of the stage `tune`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from aotc.aot.lower.spec import Candidate, KernelSpec

Mode = Literal["off", "quick", "full"]
SPILL_LIMIT_BYTES = 256  # of one thread, beyond which a candidate is taken only for want of others


@dataclass(frozen=True, slots=True)
class Operand:
    """The memory behind one parameter of a kernel.

    `role`: a weight comes from device memory at every call; what the kernel before has written is
    still in the cache if it fits; stored ones are the results.
    """

    nbytes: int
    role: Literal["weight", "read", "stored"] = "read"


@dataclass(frozen=True, slots=True)
class Job:
    """A kernel, the memory of its parameters in their order, and how often a call launches it.

    is_followed_early: on a GPU the next kernel's programs may come while this one's still wait.
    """

    spec: KernelSpec
    operands: tuple[Operand, ...]
    launches: int = 1
    is_followed_early: bool = False

    @property
    def weight(self) -> float:
        """A figure that grows with the kernel's share of a call: bytes plus operations."""
        return self.launches * (self.spec.bytes + self.spec.operations / 100)


@dataclass(frozen=True, slots=True)
class Option:
    """A candidate that compiled."""

    candidate: Candidate
    binary: Any  # of the target's own kind
