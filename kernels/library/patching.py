"""Puts functions of the library into a model that is there, and takes them out again.

Only how modules compute is changed: a module that is replaced keeps its class, its place and its
parameters, and has a `forward` of its own. Attention goes through transformers' registry, rotary
positions through the function of the model's file. (Liger does so too, arXiv 2410.10989, by tables
of models; here the modules of any model are looked at.)
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import types
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

from torch import nn

from aotc.aot.errors import KernelValueInvalid, PatchTargetInvalid
from aotc.kernels.library import deferred_logits, registered_attention
from aotc.kernels.library.patch_forms import (
    FORMS,
    ROTARY,
    difference,
    gated_activation,
    is_other_activation,
    rotary,
    rotary_difference,
)

_MARK = "_aotc_replaces"
"""Attribute of functions that stand for another."""
_LOSS = "linear_cross_entropy"
NAMES = tuple(dict.fromkeys([*(form.function for form in FORMS), "rope", "attention", _LOSS]))
"""Functions that `patch` puts in."""

# Settings of models that change the logits behind the last layer, → the values that change nothing.
_LOGIT_CHANGES = {
    "final_logit_softcapping": (None,), "logit_scale": (None, 1.0), "logits_scaling": (None, 1.0),
    "lm_head_multiplier": (None, 1.0),
}  # fmt: skip


@dataclass(frozen=True)
class Part:
    """Of a model, one place. kind: its class or, of what is no module, what it is."""

    place: str
    kind: str
    function: str = ""
    """The library's name of what computes it now."""
    reason: str = ""
    """Why it is left."""


@dataclass
class Patch:
    """What `patch` did with a model. As a context manager it is undone at the end of the block."""

    model: str
    replaced: list[Part] = field(default_factory=list)
    left: list[Part] = field(default_factory=list)
    _undo: list[Callable[[], None]] = field(default_factory=list, init=False, repr=False)

    def undo(self) -> None:
        """Let the model compute as before; again is nothing."""
        while self._undo:
            self._undo.pop()()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()

    def __str__(self) -> str:
        """The report as text: equal parts on one line, with their number."""
        lines = []
        if not self.replaced:
            lines.append(f"nothing in `{self.model}` is computed by the library")
        counts = Counter((part.function, part.kind) for part in self.replaced)
        for (function, kind), count in counts.items():
            lines.append(f"{function}: {count} {kind}")
        reasons = Counter((part.kind, part.reason) for part in self.left)
        for (kind, reason), count in reasons.items():
            lines.append(f"left: {count} {kind}: {reason}")
        return "\n".join(lines)


_patches: weakref.WeakKeyDictionary[nn.Module, list[Patch]] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def patch(model: nn.Module, *, skip: Collection[str] = ()) -> Patch:
    """Have the library's functions compute parts of `model`, which keeps its modules, parameters,
    `state_dict` and hooks.

    model: a `torch.nn.Module`; of transformers' models also attention, rotary positions and the
    loss. Replaced are LayerNorm, RMSNorm (also of weights that 1 is added to, as Gemma's) and
    GroupNorm; SiLU, GELU and squared ReLU, and gated MLPs around them; rotary positions, for every
    model of the same file, which look them up there; attention where transformers would call
    torch's; the loss of causal language models, whose last linear layer then keeps no logits
    (`outputs.logits` are computed when they are read, which raises LogitsNotKept after the weights
    changed). Each is compared with the module's own numbers on a small random input first; what
    differs, or what cannot be tried (weights on `meta`, shards), is left. Patch a model after its
    weights are loaded, and before it is compiled or its parameters are sharded.

    skip: names of functions that are not put in, of those that the report has.
    Returns a `Patch`: what was replaced by what, what was left and why, as lists and by `str`;
    `with patch(model):` undoes it at the end of the block, as `undo()` and `unpatch(model)` do.
    Raises PatchTargetInvalid and KernelValueInvalid.
    """
    _check_model("patch", model)
    for name in skip:
        if name not in NAMES:
            raise KernelValueInvalid(
                function="patch", argument="skip", found=name, expected=f"of {', '.join(NAMES)}",
                advice="a string alone is read by its letters: `skip=(name,)`; " * (len(name) == 1),
            )  # fmt: skip
    made = Patch(type(model).__name__)
    with _lock:
        _patch_modules(model, skip, made)
        for function, step in (
            ("rope", _patch_rotary),
            ("attention", _patch_attention),
            (_LOSS, _patch_loss),
        ):
            if function not in skip:
                step(model, made)
        _patches.setdefault(model, []).append(made)
    # What is not the model's own, as the function of its file, is put back when the model is gone.
    weakref.finalize(model, made.undo).atexit = False
    return made


def unpatch(model: nn.Module) -> None:
    """Undo every `patch` of `model`, of a copy of one also those that it was copied with.

    Raises PatchTargetInvalid.
    """
    _check_model("unpatch", model)
    with _lock:
        for made in reversed(_patches.pop(model, [])):
            made.undo()
        for module in model.modules():
            for name in ("forward", "_loss_function"):
                if _is_ours(module.__dict__.get(name)):
                    del module.__dict__[name]
            config: Any = getattr(module, "config", None)
            if getattr(config, "_attn_implementation", None) == registered_attention.NAME:
                config._attn_implementation = registered_attention.INSTEAD_OF


def _check_model(function: str, model: Any) -> None:
    if not isinstance(model, nn.Module):
        raise PatchTargetInvalid(function=function, found=type(model).__name__)


def _is_ours(function: Any) -> bool:
    return hasattr(getattr(function, "__func__", function), _MARK)


def _replace(owner: nn.Module, name: str, function: Any, made: Patch) -> None:
    """Give `owner` an attribute of its own, and take it away, or put back the one before, later.

    A patch must not keep its model alive, so it holds no method that is bound to a module.
    """
    before = owner.__dict__.get(name)
    owner.__dict__[name] = function
    place, ours = weakref.ref(owner), getattr(function, "__func__", function)

    def undo() -> None:
        there = place()
        found = None if there is None else there.__dict__.get(name)
        if there is None or getattr(found, "__func__", found) is not ours:
            return
        if before is None:
            del there.__dict__[name]
        else:
            there.__dict__[name] = before

    made._undo.append(undo)


def _bound(module: nn.Module, forward: Callable[..., Any], original: Any) -> types.MethodType:
    """`forward` as a method, named and described as the one it replaces. A pickle of the module
    names it only, and so has the class's."""
    forward = functools.wraps(original)(forward)
    setattr(forward, _MARK, original)
    return types.MethodType(forward, module)


# -- modules ---------------------------------------------------------------------------------------


def _patch_modules(model: nn.Module, skip: Collection[str], made: Patch) -> None:
    results: dict[Any, tuple[str, Any]] = {}
    computed: set[nn.Module] = set()  # activations that a gated MLP no longer calls
    for place, module in model.named_modules():
        if module in computed:
            continue
        found = _try_forms(module, skip, results)
        if found is None:
            if is_other_activation(module):
                reason = "the library has no function for this activation"
                made.left.append(Part(place, type(module).__name__, reason=reason))
            continue
        function, forward = found
        activation = gated_activation(module)
        if isinstance(forward, str):
            made.left.append(Part(place, type(module).__name__, reason=forward))
            if activation is not None and _is_ours(module.__dict__.get("forward")):
                computed.add(activation)
            continue
        original = type(module).forward
        _replace(module, "forward", _bound(module, forward(module, original), original), made)
        made.replaced.append(Part(place, type(module).__name__, function))
        if activation is not None:
            computed.add(activation)


def _try_forms(
    module: nn.Module, skip: Collection[str], results: dict[Any, tuple[str, Any]]
) -> tuple[str, Any] | None:
    """The function's name, and what makes its `forward`, or a reason against it; None where no
    form is one of such modules.

    results: of modules like it that were tried: of the same class, types and numbers.
    """
    reason: str | None = None
    for form in FORMS:
        fits = None if form.function in skip else form.fits(module)
        if fits is None:
            continue
        if _is_ours(module.__dict__.get("forward")):
            return form.function, "it is patched already"
        if "forward" in module.__dict__:
            return form.function, "it has a `forward` of its own"
        if not fits:
            key = (form, *_likeness(module))
            if key not in results:
                original = type(module).forward
                fits = difference(module, original, form.forward(module, original), form)
                results[key] = (fits, form.forward)
            fits = results[key][0]
            if not fits:
                return form.function, form.forward
        reason = reason or fits
    return None if reason is None else ("", reason)


def _likeness(module: nn.Module) -> tuple[Any, ...]:
    """What modules have in common that compute the same with other weights."""
    tensors = [(name, x.dtype, x.device, type(x)) for name, x in module.named_parameters()]
    children = [(name, type(child), str(child)) for name, child in module.named_children()]
    return type(module), str(module), tuple(tensors), tuple(children)


# -- of transformers -------------------------------------------------------------------------------


def _pretrained(model: nn.Module) -> list[Any]:
    """The modules that are models of transformers, which is not imported for this."""
    transformers = sys.modules.get("transformers.modeling_utils")
    if transformers is None:
        return []
    return [each for each in model.modules() if isinstance(each, transformers.PreTrainedModel)]


_rotaries: dict[str, tuple[Any, Any, int]] = {}
"""Name of a file → its function, ours, and by how many patches it is replaced."""


def _files(model: nn.Module) -> Iterator[Any]:
    names = dict.fromkeys(type(module).__module__ for module in model.modules())
    yield from filter(None, map(sys.modules.get, names))


def _patch_rotary(model: nn.Module, made: Patch) -> None:
    for file in _files(model):
        original = file.__dict__.get(ROTARY)
        if not callable(original):
            continue
        name, kind = file.__name__, f"{ROTARY} of {file.__name__.rpartition('.')[2]}"
        if name in _rotaries:
            ours = _rotaries[name][1]
        else:
            ours = rotary(original)
            arguments = list(inspect.signature(original).parameters)
            reason = rotary_difference(original, ours, arguments)
            if reason:
                made.left.append(Part(f"{name}.{ROTARY}", kind, reason=reason))
                continue
            _rotaries[name] = (original, ours, 0)
        original, _, count = _rotaries[name]
        _rotaries[name] = (original, ours, count + 1)
        setattr(file, ROTARY, ours)
        made._undo.append(functools.partial(_restore_rotary, file))
        made.replaced.append(Part(f"{name}.{ROTARY}", kind, "rope"))


def _restore_rotary(file: Any) -> None:
    original, ours, count = _rotaries.pop(file.__name__)
    if count > 1:
        _rotaries[file.__name__] = (original, ours, count - 1)
    elif getattr(file, ROTARY) is ours:
        setattr(file, ROTARY, original)


_REGISTRY = "ALL_ATTENTION_FUNCTIONS"
"""transformers' name of the registry, in the files of models that look attention up in it."""


def _patch_attention(model: nn.Module, made: Patch) -> None:
    models = _pretrained(model)
    configs = list({id(each.config): each.config for each in models}.values())
    kinds = {id(each.config): type(each).__name__ for each in reversed(models)}
    before = [(config, config._attn_implementation) for config in configs]
    looked_up = {
        id(each.config)
        for each in models
        if hasattr(sys.modules.get(type(each).__module__), _REGISTRY)
    }
    changed: list[Any] = []
    for config, implementation in before:
        kind = f"attention of {kinds[id(config)]}"
        if implementation == registered_attention.NAME:
            made.left.append(Part("", kind, reason="it is patched already"))
        elif implementation != registered_attention.INSTEAD_OF:
            reason = (
                f"its implementation is {implementation!r}, expected "
                f"{registered_attention.INSTEAD_OF!r}"
            )
            made.left.append(Part("", kind, reason=reason))
        elif id(config) not in looked_up:
            reason = "its code does not look attention up in transformers' registry"
            made.left.append(Part("", kind, reason=reason))
        else:
            registered_attention.register()
            made.replaced.append(Part("", kind, "attention"))
            changed.append(config)

    def undo() -> None:
        for config, implementation in before:
            config._attn_implementation = implementation

    if changed:
        made._undo.append(undo)
        for config, implementation in before:  # a config hands its own on to those inside it
            new = registered_attention.NAME if config in changed else implementation
            config._attn_implementation = new


def _patch_loss(model: nn.Module, made: Patch) -> None:
    for each in _pretrained(model):
        last = each.get_output_embeddings() if hasattr(each, "get_output_embeddings") else None
        if last is None:
            continue
        kind = f"loss of {type(each).__name__}"
        reason = _reason_against_loss(each, last)
        if reason:
            made.left.append(Part("", kind, reason=reason))
            continue
        loss = each.loss_function
        ours = deferred_logits.causal_loss(loss)
        setattr(ours, _MARK, loss)
        _replace(each, "_loss_function", ours, made)
        capping = _logit_change(each.config)
        if capping:
            made.replaced.append(Part("", kind, "cross_entropy"))
            reason = f"the model changes the logits (`{capping}`)"
            made.left.append(Part("", f"last layer of {type(each).__name__}", reason=reason))
            continue
        original = type(each).forward
        forward = deferred_logits.model_forward(original)
        _replace(each, "forward", _bound(each, forward, original), made)
        original = type(last).forward
        forward = deferred_logits.last_layer_forward(original)
        _replace(last, "forward", _bound(last, forward, original), made)
        made.replaced.append(Part("", kind, _LOSS))


def _logit_change(config: Any) -> str:
    """The setting by which a model changes its logits; empty for none."""
    return next(
        (
            name
            for name, neutral in _LOGIT_CHANGES.items()
            if getattr(config, name, None) not in neutral
        ),
        "",
    )


def _reason_against_loss(model: Any, last: nn.Module) -> str:
    if type(last) is not nn.Linear:
        return f"its last layer is a `{type(last).__name__}`, expected a `Linear`"
    code = getattr(inspect.unwrap(type(model).forward), "__code__", None)
    if code is None or "loss_function" not in code.co_names:
        return "its `forward` does not call `loss_function`"
    if "forward" in model.__dict__ or "forward" in last.__dict__:
        is_ours = _is_ours(model.__dict__.get("forward"))
        return "it is patched already" if is_ours else "it has a `forward` of its own"
    loss = model.loss_function
    if _is_ours(loss):
        return "it is patched already"
    if getattr(loss, "__name__", "") != "ForCausalLMLoss":
        return f"it is `{getattr(loss, '__name__', loss)}`, expected `ForCausalLMLoss`"
    return ""
