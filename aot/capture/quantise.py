"""`--quantize`: rounds the weights of a model's linear layers and embeddings to quantised values.

The module gets the values that the quantised weights stand for, so that its golden numbers are
those of the quantised model. The original weights are kept for the graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from aotc.aot.capture.exporting import run, unchanged
from aotc.aot.capture.golden import golden_tensors
from aotc.aot.capture.importer import to_array
from aotc.aot.capture.spec import Spec
from aotc.aot.errors import SpecModelInvalid
from aotc.aot.ir.quantised import GROUP, LARGEST, SMALLEST_SCALE
from aotc.aot.ir.storage import Array

LAYERS = (torch.nn.Linear, torch.nn.Embedding)


@dataclass(frozen=True, slots=True, eq=False)
class Quantised:
    """What was quantised, and what it cost."""

    kind: str
    originals: dict[str, Array]  # weights as they came, by their names
    output_error: float  # largest difference of an output, relative to its largest element

    def facts(self) -> dict[str, object]:
        """The same as plain data."""
        return {
            "kind": self.kind,
            "group": GROUP,
            "weights": len(self.originals),
            "output_error": self.output_error,
        }


def quantise_module(spec: Spec, kind: str) -> Quantised:
    """Round the weights of the spec's module, in place. Raises `SpecModelInvalid` for a program."""
    if spec.module is None:
        raise SpecModelInvalid(path=spec.path, name="model", found="an exported program")
    module = spec.module
    originals: dict[str, Array] = {}
    with torch.no_grad():
        before = _outputs(spec, module)
        seen: dict[int, Array] = {}  # tied weights have several names
        for name, layer in module.named_modules():
            weight = getattr(layer, "weight", None)
            if type(layer) not in LAYERS or type(weight) is not torch.nn.Parameter:
                continue
            if not weight.is_floating_point() or weight.shape[1] % GROUP:
                continue
            if id(weight) not in seen:
                seen[id(weight)] = to_array(weight).copy()
                weight.copy_(_rounded(weight, kind))
            originals[f"{name}.weight" if name else "weight"] = seen[id(weight)]
        after = _outputs(spec, module)
    errors = [
        float((new.double() - old.double()).abs().max() / (old.double().abs().max() or 1.0))
        for new, old in zip(after, before, strict=True)
        if old.is_floating_point() and old.numel()
    ]
    return Quantised(kind, originals, max(errors, default=0.0))


def _outputs(spec: Spec, module: torch.nn.Module) -> tuple[torch.Tensor, ...]:
    """What the model gives for the example. It is no call of the model's user: states stay."""
    attributes = [value for each in module.modules() for value in vars(each).values()]
    tensors = [each for each in attributes if isinstance(each, torch.Tensor)]
    with unchanged([*module.buffers(), *tensors]):
        return tuple(each.clone() for each in golden_tensors(lambda: run(spec, module)))


def _rounded(weight: torch.Tensor, kind: str) -> torch.Tensor:
    groups = weight.float().reshape(weight.shape[0], -1, GROUP)
    scale = (groups.abs().amax(2, keepdim=True) / LARGEST[kind]).clamp_min(SMALLEST_SCALE)
    ratio = groups / scale
    if kind == "fp8":
        limited = ratio.clamp(-LARGEST[kind], LARGEST[kind])
        numbers = limited.to(torch.float8_e4m3fn).float()
    else:
        numbers = ratio.round().clamp(-LARGEST[kind], LARGEST[kind])
    return (numbers * scale).reshape(weight.shape)
