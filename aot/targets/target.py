"""Target: the kind of machine that code is generated for. Family: what the build asks of a device
family, of which a target is a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from aotc.aot.targets.binary import KernelBinary, Library
from aotc.aot.traits import TargetTraits


@dataclass(frozen=True, slots=True)
class Target:
    """One row of a family's table. Bundles hold `name`, the command line reads `argument`."""

    name: str  # `cpu-x86-64-v4`, `cuda-sm_90`: also a folder of the bundle
    device: str  # the family: a folder here and in `runtime/drivers`
    architecture: str  # `x86-64-v4`, `sm_90`
    needs: tuple[str, ...]  # what a machine must have, in the words of its driver's `features()`
    traits: TargetTraits
    smaller_architecture: str = ""  # whose code runs here too, where there is one

    @property
    def argument(self) -> str:
        """The target as `--target` takes it: `cuda:sm_90`, `cpu-x86-64-v4`."""
        return f"{self.device}:{self.architecture}" if self.traits.is_gpu else self.name

    def with_precision(self, products: str, convolutions: str = "ieee") -> Target:
        """The target whose products and convolutions of f32 have the precision that torch would
        use; a CPU has only one."""
        if not self.traits.is_gpu:
            return self
        traits = replace(self.traits, dot_precision=products, convolution_precision=convolutions)
        return replace(self, traits=traits)


@dataclass(frozen=True, slots=True)
class Family:
    """What the build asks of a device family.

    `compiler`, `support_code` and `measure` are functions as `package.module:name`, for worker
    processes. The compiler takes (source, function, params, config, architecture) and gives
    a KernelBinary. The support code is, as files by name, what a library holds beside its kernels,
    and so tells by its place in the cache whether this compiler was here before; `library` puts
    both together. `measure` takes a Measurement's bytes and gives its Rows; `measure_call`
    takes those of a CallMeasurement and gives what `aot/targets/cuda/measure_call.py` says (empty:
    calls are not measured). `candidates`: mode of
    tuning → how many candidates of a kernel it looks at, best first by the model. `is_apart`: a
    kernel that fails there may end its process, and compiling does not disturb measuring. `tools`:
    the versions of the programs that it runs beside Triton, by name.
    """

    find: Callable[[str], Target | None]
    known: Callable[[], Sequence[str]]
    compiler: str
    support_code: str
    library: Callable[[Sequence[KernelBinary], Mapping[str, bytes]], Library]
    measure: str
    candidates: Mapping[str, int]
    is_apart: bool = False
    measure_call: str = ""
    tools: Callable[[], Mapping[str, str]] = dict
