"""The kinds of modules in a model that a function of the library can compute in their place.

A form says which modules it fits by class and parts, and what `forward` becomes. Before a module is
replaced, its own `forward` and the new one are called on the same small random numbers
(`difference`): what a class is named decides nothing alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from aotc.kernels.library.checks import FLOATS
from aotc.kernels.library.normalization import group_norm, layer_norm, rms_norm
from aotc.kernels.library.pointwise import geglu, gelu, relu_squared, silu, swiglu
from aotc.kernels.library.rope import rope

Forward = Callable[..., Tensor]
Function = Callable[..., Any]

_PROBE_ROWS = (2, 3)
_PROBE_WIDTH = 24
"""Of modules without weights; eight channels in every group of a norm, else."""
_MOST_STEPS = 64
"""Roundings of the type, of the largest number, that two ways to compute a module may differ by."""


class Form(NamedTuple):
    """function: what replaces it, by its name in `aotc.kernels`.

    fits: a reason why a module that looks like one is none, "" where it is one, None where it does
    not look like one. forward: (module, its own `forward`) → the new one. shape: of an input.
    """

    function: str
    fits: Callable[[nn.Module], str | None]
    forward: Callable[[nn.Module, Function], Forward]
    shape: Callable[[nn.Module], tuple[int, ...]]


def difference(module: nn.Module, original: Function, forward: Forward, form: Form) -> str:
    """ "" where both give the same on random numbers, else what is different."""
    weights = [*module.parameters(), *module.buffers()]
    first = weights[0] if weights else torch.empty(0, dtype=torch.float32)
    for each in weights:
        if each.is_meta:
            return "its weights have no values yet (they are on `meta`), so nothing can be compared"
        if type(each) not in (Tensor, nn.Parameter):
            return f"its weights are of class `{type(each).__name__}`"
    if first.dtype not in FLOATS:
        return f"its weights are of type {first.dtype}"
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(form.shape(module), generator=generator).to(first.device, first.dtype)
    training = [(each, each.training) for each in module.modules()]
    try:
        with torch.no_grad():
            module.train(False)
            expected, found = original(module, x), forward(module, x)
    except Exception as error:  # of a model's own code: anything
        return f"a trial raised {type(error).__name__}: {str(error).splitlines()[0]}"
    finally:
        for each, was_training in training:
            each.training = was_training
    return compared(found, expected)


def compared(found: Any, expected: Any) -> str:
    """ "" where two results are alike within roundings, else how they differ."""
    if not isinstance(expected, Tensor) or found.shape != expected.shape:
        return "its result has another shape"
    if found.dtype != expected.dtype:
        return f"its result is of type {expected.dtype}, that of the library {found.dtype}"
    away = float((found.double() - expected.double()).abs().max())
    largest = float(expected.double().abs().max())
    if away <= _MOST_STEPS / 2 * torch.finfo(expected.dtype).eps * max(largest, 1e-3):
        return ""
    return f"its numbers are others: {away:.2g} away from the library's, the largest {largest:.2g}"


# -- norms -----------------------------------------------------------------------------------------


def _is_exactly(*kinds: type) -> Callable[[nn.Module], str | None]:
    return lambda module: "" if type(module) in kinds else None


def _last_dims(module: Any) -> tuple[int, ...]:
    return (*_PROBE_ROWS, *module.normalized_shape)


def _layer_norm(module: nn.Module, original: Function) -> Forward:
    def forward(self: Any, x: Tensor) -> Tensor:
        if not _takes_weights(x, self.weight, self.bias):
            return original(self, x)
        return layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)

    return forward


def _group_norm(module: nn.Module, original: Function) -> Forward:
    def forward(self: Any, x: Tensor) -> Tensor:
        if not _takes_weights(x, self.weight, self.bias):
            return original(self, x)
        return group_norm(x, self.num_groups, self.weight, self.bias, self.eps)

    return forward


def _torchs_rms_norm(module: nn.Module, original: Function) -> Forward:
    def forward(self: Any, x: Tensor) -> Tensor:
        if not _takes_weights(x, self.weight):
            return original(self, x)
        return rms_norm(x, self.normalized_shape, self.weight, self.eps)

    return forward


def _takes_weights(x: Tensor, *weights: Tensor | None) -> bool:
    """Whether the module gives a result of x's type, as the library does."""
    same = all(each is None or each.dtype == x.dtype for each in weights)
    return same and not torch.is_autocast_enabled(x.device.type)


_EPSILONS = ("variance_epsilon", "eps", "epsilon")


def _epsilon_name(module: nn.Module) -> str | None:
    return next(
        (name for name in _EPSILONS if isinstance(getattr(module, name, None), float)), None
    )


def _is_rms_norm(module: nn.Module) -> str | None:
    """A class of a model's own: one weight, and a small number that is added to the mean."""
    name = type(module).__name__
    if not (name.endswith("RMSNorm") or name == "T5LayerNorm") or type(module) is nn.RMSNorm:
        return None
    parameters = dict(module.named_parameters())
    if set(parameters) != {"weight"} or parameters["weight"].dim() != 1 or [*module.children()]:
        return f"it has the parameters {sorted(parameters)}, expected one weight for each column"
    return "" if _epsilon_name(module) else f"it has no number named one of {', '.join(_EPSILONS)}"


def _rms_norm(module: nn.Module, original: Function, offset: float) -> Forward:
    epsilon = _epsilon_name(module) or ""

    def forward(self: Any, x: Tensor) -> Tensor:
        weight, eps = self.weight, getattr(self, epsilon)
        if offset:
            # The sum is in f32, as in Gemma: in 16 bits a weight near 0 would be lost.
            weight = (weight if weight.dtype == torch.float64 else weight.float()) + offset
            if weight.dtype not in (x.dtype, torch.float32):
                return original(self, x)
        elif weight.dtype != x.dtype:
            return original(self, x)
        return rms_norm(x, weight.shape, weight, eps)

    return forward


# -- activations -----------------------------------------------------------------------------------

# Classes of torch and transformers, without weights, by name → function and arguments.
_ACTIVATIONS: dict[str, tuple[str, Function]] = {
    "SiLU": ("silu", silu),
    "SiLUActivation": ("silu", silu),
    "GELUActivation": ("gelu", gelu),
    "NewGELUActivation": ("gelu", functools.partial(gelu, approximate="tanh")),
    "FastGELUActivation": ("gelu", functools.partial(gelu, approximate="tanh")),
    "GELUTanh": ("gelu", functools.partial(gelu, approximate="tanh")),
    "PytorchGELUTanh": ("gelu", functools.partial(gelu, approximate="tanh")),
    "ReLUSquaredActivation": ("relu_squared", relu_squared),
}
_ACTIVATION_FILES = ("torch.nn.modules.activation", "transformers.activations")


def activation_of(module: nn.Module) -> tuple[str, Function] | None:
    """The function that computes an activation, and its name."""
    if type(module).__module__ not in _ACTIVATION_FILES or getattr(module, "inplace", False):
        return None
    if type(module) is nn.GELU:
        return "gelu", functools.partial(gelu, approximate=module.approximate)
    return _ACTIVATIONS.get(type(module).__name__)


def _is_activation(name: str) -> Callable[[nn.Module], str | None]:
    def fits(module: nn.Module) -> str | None:
        found = activation_of(module)
        return "" if found is not None and found[0] == name else None

    return fits


def is_other_activation(module: nn.Module) -> bool:
    """Whether it is an activation that the library has no function for."""
    is_one = type(module).__module__ in _ACTIVATION_FILES and not [*module.parameters()]
    return is_one and activation_of(module) is None


def _activation(module: nn.Module, original: Function) -> Forward:
    _, function = activation_of(module) or ("", original)

    def forward(self: nn.Module, input: Tensor) -> Tensor:
        result: Tensor = function(input) if input.dtype in FLOATS else original(self, input)
        return result

    return forward


# -- gated MLPs ------------------------------------------------------------------------------------

_ACTIVATION_NAMES = ("act_fn", "activation_fn", "act")
# Children beside the activation → how the gate and what it multiplies come of x.
_GATED: dict[frozenset[str], Callable[[Any, Tensor], tuple[Tensor, Tensor]]] = {
    frozenset({"gate_proj", "up_proj", "down_proj"}): lambda self, x: (
        self.gate_proj(x),
        self.up_proj(x),
    ),
    frozenset({"gate_up_proj", "down_proj"}): lambda self, x: self.gate_up_proj(x).chunk(2, -1),
}


def gated_activation(module: nn.Module) -> nn.Module | None:
    """The activation of a gated MLP whose parts are named as in Llama's or Phi-3's."""
    children = dict(module.named_children())
    found = next((name for name in _ACTIVATION_NAMES if name in children), None)
    if found is None or frozenset(children) - {found} not in _GATED:
        return None
    return children[found]


def _is_gated(name: str) -> Callable[[nn.Module], str | None]:
    def fits(module: nn.Module) -> str | None:
        activation = gated_activation(module)
        found = None if activation is None else activation_of(activation)
        return "" if found is not None and found[0] == name else None

    return fits


def _gated(module: nn.Module, original: Function) -> Forward:
    """The linear layers are called as they stand: their hooks, adapters and shards stay."""
    activation = gated_activation(module)
    name, function = activation_of(activation) if activation is not None else ("", original)  # type: ignore[misc]
    parts = _GATED[frozenset(n for n, child in module.named_children() if child is not activation)]
    approximate = getattr(function, "keywords", {}).get("approximate", "none")

    def forward(self: Any, x: Tensor) -> Tensor:
        gate, up = parts(self, x)
        if gate.dtype != up.dtype or gate.dtype not in FLOATS:
            return original(self, x)
        joined = swiglu(gate, up) if name == "silu" else geglu(gate, up, approximate)
        result: Tensor = self.down_proj(joined)
        return result

    return forward


def _mlp_input(module: Any) -> tuple[int, ...]:
    first = module.gate_proj if hasattr(module, "gate_proj") else module.gate_up_proj
    return (*_PROBE_ROWS, first.in_features)


def _alone(module: nn.Module) -> tuple[int, ...]:
    return (*_PROBE_ROWS, _PROBE_WIDTH)


def _one_weight(module: Any) -> tuple[int, ...]:
    return (*_PROBE_ROWS, *module.weight.shape)


FORMS = (
    Form("layer_norm", _is_exactly(nn.LayerNorm), _layer_norm, _last_dims),
    Form("rms_norm", _is_exactly(nn.RMSNorm), _torchs_rms_norm, _last_dims),
    Form(
        "group_norm", _is_exactly(nn.GroupNorm), _group_norm,
        lambda module: (2, module.num_channels, 5),
    ),
    Form("rms_norm", _is_rms_norm, functools.partial(_rms_norm, offset=0.0), _one_weight),
    Form("rms_norm", _is_rms_norm, functools.partial(_rms_norm, offset=1.0), _one_weight),
    Form("swiglu", _is_gated("silu"), _gated, _mlp_input),
    Form("geglu", _is_gated("gelu"), _gated, _mlp_input),
    Form("silu", _is_activation("silu"), _activation, _alone),
    Form("gelu", _is_activation("gelu"), _activation, _alone),
    Form("relu_squared", _is_activation("relu_squared"), _activation, _alone),
)  # fmt: skip
"""In the order that they are tried in; the first whose numbers are the module's is taken."""


# -- rotary positions ------------------------------------------------------------------------------

ROTARY = "apply_rotary_pos_emb"
"""transformers' name of the function, in each model's file."""
_ROTARY_ARGUMENTS = ["q", "k", "cos", "sin"]


def rotary(original: Function) -> Function:
    """The function by `rope`: q, k [batch, heads, T, D], cos, sin [batch or 1, T, D] whose halves
    are alike, as transformers makes them."""

    @functools.wraps(original)
    def apply_rotary_pos_emb(
        q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *rest: Any, **named: Any
    ) -> tuple[Tensor, Tensor]:
        is_fit = (
            not rest
            and named.get("unsqueeze_dim", 1) == 1
            and set(named) <= {"unsqueeze_dim"}
            and q.dim() == k.dim() == 4
            and cos.dim() == 3
            and q.dtype == k.dtype == cos.dtype
            and q.dtype in FLOATS
            and cos.shape[0] in (1, q.shape[0])
            and cos.shape[-1] == q.shape[-1] == k.shape[-1]
            and q.shape[-2] == k.shape[-2] == cos.shape[-2]
        )
        if not is_fit:
            found: tuple[Tensor, Tensor] = original(q, k, cos, sin, *rest, **named)
            return found
        half = cos.shape[-1] // 2
        angles = [each[..., :half] for each in (cos, sin)]
        if cos.shape[0] == 1:
            angles = [each[0] for each in angles]
        return rope(q, *angles), rope(k, *angles)

    return apply_rotary_pos_emb


def rotary_difference(original: Function, ours: Function, names: list[str]) -> str:
    """ "" where both give the same, else what is different."""
    if names[:4] != _ROTARY_ARGUMENTS:
        return f"it takes ({', '.join(names)}), expected ({', '.join(_ROTARY_ARGUMENTS)}, …)"
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn((2, heads, 3, 8), generator=generator) for heads in (2, 1))
    turns = torch.randn((2, 3, 4), generator=generator).repeat(1, 1, 2)
    try:
        with torch.no_grad():
            found, expected = (each(q, k, turns.cos(), turns.sin()) for each in (ours, original))
    except Exception as error:  # of a model's own code: anything
        return f"a trial raised {type(error).__name__}: {str(error).splitlines()[0]}"
    return next(filter(None, map(compared, found, expected)), "")
