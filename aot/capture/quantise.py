"""`--quantize`: rounds the weights of a model's linear layers and embeddings to quantised values.

The module gets the values that the quantised weights stand for, so that its golden numbers are
those of the quantised model. The original weights are kept for the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch

from aotc.aot.capture.exporting import initialise, run, unchanged, writing_to
from aotc.aot.capture.golden import golden_tensors
from aotc.aot.capture.importer import to_array
from aotc.aot.capture.spec import Spec
from aotc.aot.errors import NothingToQuantise
from aotc.aot.ir.quantised import GROUP, LARGEST, SMALLEST_SCALE
from aotc.aot.ir.storage import Array

LAYERS = (torch.nn.Linear, torch.nn.Embedding)
TRANSPOSED = "transformers.pytorch_utils", "Conv1D"  # GPT-2's linear layers
ELEMENTS_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Quantised:
    """What was quantised, and what it cost."""

    kind: str
    originals: dict[str, Array]  # weights as they came, by their names
    transposed: frozenset[str]  # those of them that have their rows along the second dim
    # Largest difference of an output, relative to its largest element; None if none is a float.
    output_error: float | None
    measured: str  # `outputs` or, where these are no floats, `results of` the last quantised layer
    share: float  # of the model's parameters, by elements

    def facts(self) -> dict[str, object]:
        """The same as plain data."""
        return {
            "kind": self.kind,
            "group": GROUP,
            "weights": len(self.originals),
            "output_error": self.output_error,
            "measured": self.measured,
            "share": self.share,
        }


def quantise_module(specs: Sequence[Spec], kind: str) -> Quantised:
    """Round the weights of the module that the specs, one an entry point, share, in place. Raises
    `NothingToQuantise`."""
    modules = [spec.module for spec in specs if spec.module is not None]
    if len(modules) < len(specs):
        raise NothingToQuantise(kind=kind, path=specs[0].path, found="an exported program")
    layers = _layers(modules[0])
    if not layers:
        raise NothingToQuantise(kind=kind, path=specs[0].path, found="a model without such layers")
    with torch.no_grad():
        before = [_results(*pair) for pair in zip(specs, modules, strict=True)]
        originals = _round_each(layers, kind)
        after = [_results(*pair) for pair in zip(specs, modules, strict=True)]
    # Of all entries: some may read none of these weights.
    rows = [_differing(*pair) for pair in zip(before, after, strict=True)]
    errors = [(error, measured) for error, measured in rows if error is not None]
    error, measured = max(errors, default=(None, "outputs"))
    transposed = {_weight_name(name) for name, each in layers.items() if _is_transposed(each)}
    share = _share(originals, modules[0])
    return Quantised(kind, originals, frozenset(transposed), error, measured, share)


def _share(originals: Mapping[str, Array], module: torch.nn.Module) -> float:
    """How much of the model's parameters is quantised; tied weights count once."""
    rounded = {id(array): array.size for array in originals.values()}
    return sum(rounded.values()) / sum(each.numel() for each in module.parameters())


def _layers(module: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """The layers that are quantised, by name."""
    return {name: each for name, each in module.named_modules() if _has_groups(each)}


def _round_each(layers: Mapping[str, torch.nn.Module], kind: str) -> dict[str, Array]:
    """Round the layers' weights; their values as they came, by the model's names."""
    originals: dict[str, Array] = {}
    seen: dict[int, Array] = {}  # tied weights have several names
    for name, layer in layers.items():
        weight = layer.weight
        assert isinstance(weight, torch.nn.Parameter)
        if id(weight) not in seen:
            seen[id(weight)] = to_array(weight).copy()
            rows = weight.data  # no change that autograd has to know of
            _round(rows.t() if _is_transposed(layer) else rows, kind)
        originals[_weight_name(name)] = seen[id(weight)]
    return originals


def _weight_name(layer: str) -> str:
    return f"{layer}.weight" if layer else "weight"


def _is_transposed(layer: torch.nn.Module) -> bool:
    """Whether the layer multiplies by its weight as it is: [k, columns]."""
    return (type(layer).__module__, type(layer).__name__) == TRANSPOSED


@contextmanager
def own_weights_kept(specs: Sequence[Spec]) -> Iterator[None]:
    """Afterwards the weights of live modules are what they were before `quantise_module`.

    They are rounded where they lie, and not in a copy of the module: functions of the user's, such
    as an entry point's, may hold the module itself, and not every module can be copied.
    """
    for each in specs:
        initialise(each)  # lazy weights have elements from here on
    modules = {id(each.module): each.module for each in specs if each.module is not None}
    layers = [each for module in modules.values() for each in module.modules()]
    weights = {id(each.weight): each.weight for each in layers if _has_groups(each)}
    kept = [(weight.data, weight.detach().clone()) for weight in weights.values()]
    try:
        yield
    finally:
        for weight, values in kept:
            with writing_to(weight):
                weight.copy_(values)


def _has_groups(layer: torch.nn.Module) -> bool:
    """Whether the layer's weight can be quantised: its rows are whole groups, each element has
    memory of its own, and calls do not change it."""
    weight = getattr(layer, "weight", None)
    is_known = type(layer) in LAYERS or _is_transposed(layer)
    if not is_known or type(weight) is not torch.nn.Parameter:
        return False
    if getattr(layer, "max_norm", None) is not None:  # a lookup scales the rows that it reads
        return False
    depth = weight.shape[0 if _is_transposed(layer) else 1]
    if not weight.is_floating_point() or not weight.numel() or depth % GROUP:
        return False
    return all(
        stride or extent == 1 for stride, extent in zip(weight.stride(), weight.shape, strict=True)
    )


@dataclass(slots=True)
class _Results:
    """What the model gives for the example."""

    outputs: tuple[torch.Tensor, ...] = ()
    last_layer: str = ""
    of_last_layer: tuple[torch.Tensor, ...] = ()


def _results(spec: Spec, module: torch.nn.Module) -> _Results:
    """Outputs, and the result of the last layer that is quantised. It is no call of the model's
    user: states stay."""
    found = _Results()

    def watching(name: str) -> Callable[..., None]:
        def hook(_layer: torch.nn.Module, _inputs: object, result: torch.Tensor) -> None:
            if torch.compiler.is_compiling():
                return  # the body of a branch or a loop, which Dynamo traces: it may change nothing
            found.last_layer, found.of_last_layer = name, (result.detach().clone(),)

        return hook

    attributes = [value for each in module.modules() for value in vars(each).values()]
    tensors = [each for each in attributes if isinstance(each, torch.Tensor)]
    with ExitStack() as hooks, unchanged([*module.buffers(), *tensors]):
        for name, layer in _layers(module).items():
            hooks.callback(layer.register_forward_hook(watching(name)).remove)
        outputs = golden_tensors(lambda: run(spec, module))
        found.outputs = tuple(each.clone() for each in outputs)
    return found


def _differing(before: _Results, after: _Results) -> tuple[float | None, str]:
    """The largest difference of one entry point's results, None where none is known, and of what
    results it is."""
    measured, errors = "outputs", _errors(before.outputs, after.outputs)
    if not errors and before.last_layer == after.last_layer:  # tokens, as a language model gives
        errors = _errors(before.of_last_layer, after.of_last_layer)
        measured = f"results of `{before.last_layer or 'the model'}`"
    return max(errors, default=None), measured


def _errors(before: Sequence[torch.Tensor], after: Sequence[torch.Tensor]) -> list[float]:
    """Largest difference of each that is of floats, relative to its largest element; of the
    elements that are finite in both."""
    pairs = zip(before, after, strict=True)
    return [
        _error(old.double(), new.double())
        for old, new in pairs
        if old.is_floating_point() and old.numel()
    ]


def _error(old: torch.Tensor, new: torch.Tensor) -> float:
    away = (new - old).abs().nan_to_num(0.0, 0.0)
    return float(away.max() / (old.abs().nan_to_num(0.0, 0.0).max() or 1.0))


def _round(weight: torch.Tensor, kind: str) -> None:
    """Give a weight [rows, columns] the values that its codes stand for, a few rows at a time: an
    embedding's f32 copies would each have gigabytes."""
    with writing_to(weight):
        for rows in weight.split(max(1, ELEMENTS_AT_ONCE // weight.shape[1])):
            rows.copy_(_rounded(rows, kind))


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
