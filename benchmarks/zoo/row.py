"""One model of the zoo: how it is made, and its sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True, slots=True)
class Size:
    """Arguments of a model's maker and of the function that makes its inputs."""

    model: Mapping[str, Any]
    inputs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """A model by name. The sizes of `full` are those of a published model."""

    name: str
    make: Callable[..., nn.Module]
    inputs: Callable[..., tuple[Any, ...] | dict[str, Any]]
    small: Size
    full: Size

    def size(self, is_full: bool) -> Size:
        """The size that is asked for."""
        return self.full if is_full else self.small

    def model(self, is_full: bool = False) -> nn.Module:
        """The model in eval mode; its weights come from the random state."""
        return settled(self.make(**self.size(is_full).model), self.example(is_full)).eval()

    def example(self, is_full: bool = False) -> tuple[Any, ...] | dict[str, Any]:
        """Example inputs; the same ones each time."""
        return self.inputs(**self.size(is_full).inputs)


def settled(model: nn.Module, example: tuple[Any, ...] | dict[str, Any]) -> nn.Module:
    """`model` with statistics of its batch norms taken from the example, as training leaves them.

    Without it, random weights shrink what deep stacks of convolutions give to nothing.
    """
    norms = [part for part in model.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
    if not norms:
        return model
    for norm in norms:
        norm.momentum = None  # an average over all calls, of which there is one
    with torch.no_grad():
        if isinstance(example, dict):
            model.train()(**example)
        else:
            model.train()(*example)
    return model


def library(model: str, config: str, **fixed: Any) -> Callable[..., nn.Module]:
    """A maker of transformers' class `model` from its class `config`; nothing is downloaded.

    `fixed` are arguments of the config at every size.
    """

    def make(**sizes: Any) -> nn.Module:
        import transformers

        settings = getattr(transformers, config)(**fixed, **sizes)
        made: nn.Module = getattr(transformers, model)(settings)
        return made

    return make
