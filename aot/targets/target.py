"""Target: the kind of machine that code is generated for; a name, a family and plain figures."""

from __future__ import annotations

from dataclasses import dataclass

from aotc.aot.traits import TargetTraits


@dataclass(frozen=True, slots=True)
class Target:
    """One row of a family's table. Bundles hold `name`, the command line reads `spelling`."""

    name: str  # `cpu-x86-64-v4`, `cuda-sm_90`: also a folder of the bundle
    device: str  # the family: `cpu` or `cuda`
    architecture: str  # `x86-64-v4`, `sm_90`
    needs: tuple[str, ...]  # what a machine must have, in the words of its driver's `features()`
    traits: TargetTraits

    @property
    def spelling(self) -> str:
        """The target as `--target` takes it: `cuda:sm_90`, `cpu-x86-64-v4`."""
        return self.name.replace("cuda-", "cuda:", 1)
