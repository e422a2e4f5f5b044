"""Samples of torch's operator database (OpInfo): calls with their arguments and eager results."""

from __future__ import annotations

import itertools
import math
import sys
import types
import unittest
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.utils import _pytree as pytree

SEED = 0
NAME_PREFIX = "sample_"  # of the functions of a batch, before their places
DTYPES: dict[str, torch.dtype] = {
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f64": torch.float64,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "bool": torch.bool,
    "c64": torch.complex64,
}


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One call: `function(*tensors)` gives the tensors of its result, which eager says is right."""

    operator: str  # name of the OpInfo: `nn.functional.conv2d`, `std_mean.unbiased`
    dtype: str
    number: int  # in the order of the database
    function: Callable[..., list[torch.Tensor]]
    tensors: tuple[torch.Tensor, ...]
    expected: tuple[torch.Tensor, ...]
    # Of 16-bit floats: the call in f32, which rounds once; empty where eager cannot say. Of
    # `CANCELLED`: what the call means, by ops of eager's that are precise.
    precise: tuple[torch.Tensor, ...] = ()

    def __str__(self) -> str:
        return f"{self.operator} {self.dtype} #{self.number}"


@cache
def database() -> dict[str, Any]:
    """torch's OpInfo records by name."""
    # Its module imports a library for expected texts, of which the records use nothing.
    stand_in = types.ModuleType("expecttest")
    stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
    sys.modules.setdefault("expecttest", stand_in)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # It also has torch refuse assignments to the switches of its back ends in this process.
        with getattr(torch.backends, "__allow_nonbracketed_mutation")():
            from torch.testing._internal.common_methods_invocations import op_db
    return {_name_of(record): record for record in op_db}


def _name_of(record: Any) -> str:
    variant = record.variant_test_name
    return f"{record.name}.{variant}" if variant else str(record.name)


def dtypes_of(operator: str) -> list[str]:
    """Element types that torch's CPU supports for the operator, ours and c64, in our order."""
    supported = database()[operator].supported_dtypes("cpu")
    return [name for name, dtype in DTYPES.items() if dtype in supported]


def samples_of(operator: str, dtype: str, limit: int | None = None) -> list[Sample]:
    """The first `limit` samples (None: all) whose eager call gives tensors."""
    return list(itertools.islice(_samples(operator, dtype), limit))


def _samples(operator: str, dtype: str) -> Iterator[Sample]:
    record = database()[operator]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, item in enumerate(_inputs(record, DTYPES[dtype])):
            call = _with_values(record.op, operator) if operator in TIED else record.op
            arguments = (item.input, item.args, item.kwargs)
            function, tensors = _closed(call, arguments)
            copies = [tensor.clone() for tensor in tensors]
            torch.manual_seed(SEED)
            try:
                with torch.no_grad():
                    expected = function(*copies)
            except Exception:  # the database holds calls that a build of torch lacks
                continue
            pairs = enumerate(zip(tensors, copies, strict=True))
            changed = frozenset(at for at, pair in pairs if _differ(*pair))
            if changed:
                function, _ = _closed(call, arguments, changed)
                expected = [*expected, *(copies[at] for at in sorted(changed))]
            if expected:
                expected = [each.cpu() for each in expected]  # some samples name a device
                meant, _ = _closed(CANCELLED.get(operator, call), arguments, changed)
                has_better = dtype in SHORT or operator in CANCELLED
                precise = _precise(meant, tensors, expected) if has_better else ()
                yield Sample(operator, dtype, number, function, tensors, tuple(expected), precise)


def _differ(tensor: torch.Tensor, copy: torch.Tensor) -> bool:
    """Whether a call wrote into its copy; not all that do count it as a version."""
    is_same = (tensor == copy) | (tensor.isnan() & copy.isnan())
    return copy._version > 0 or not bool(is_same.all())


def _inputs(record: Any, dtype: torch.dtype) -> Iterator[Any]:
    """The record's samples, whose numbers do not depend on what is drawn between them."""
    torch.manual_seed(SEED)
    source, state = iter(record.sample_inputs("cpu", dtype)), torch.get_rng_state()
    while True:
        torch.set_rng_state(state)
        item = next(source, None)
        if item is None:
            return
        state = torch.get_rng_state()
        yield item


SHORT = ("f16", "bf16")


def _ndtr(data: torch.Tensor) -> torch.Tensor:
    return torch.special.erfc(data.double() * -math.sqrt(0.5)).mul(0.5)


# Eager's ½ (1 + erf) leaves nothing of a small result.
CANCELLED: dict[str, Callable[..., Any]] = {"special.ndtr": _ndtr}


def _precise(
    function: Callable[..., list[torch.Tensor]],
    tensors: tuple[torch.Tensor, ...],
    expected: list[torch.Tensor],
) -> tuple[torch.Tensor, ...]:
    short = (torch.float16, torch.bfloat16)
    wide = [tensor.float() if tensor.dtype in short else tensor.clone() for tensor in tensors]
    try:
        torch.manual_seed(SEED)
        with torch.no_grad():
            found = function(*wide)
    except Exception:  # an argument names the short type
        return ()
    if [each.shape for each in found] != [each.shape for each in expected]:
        return ()
    return tuple(each.to(like) for each, like in zip(found, expected, strict=True))


# Position of `dim` among the arguments after the input. Which place of equal elements these name is
# not defined, so it is the elements at the places that are compared.
TIED = {"argsort": 0, "kthvalue": 1, "sort": 0, "topk": 1}


def _with_values(call: Callable[..., Any], operator: str) -> Callable[..., Any]:
    """The call with each place in its result replaced by the element that stands there."""
    position = TIED[operator]

    def function(data: torch.Tensor, *rest: Any, **keywords: Any) -> list[torch.Tensor]:
        result = call(data, *rest, **keywords)
        dim = keywords.get("dim", rest[position] if len(rest) > position else -1)
        is_kept = operator != "kthvalue" or (*rest, *keywords.values())[-1] is True
        *values, places = result if isinstance(result, tuple) else (result,)
        if data.dim() and not is_kept:
            places = places.unsqueeze(dim)
        return [*values, data.gather(dim, places) if data.dim() else places]

    return function


def _closed(
    call: Callable[..., Any], arguments: Any, changed: frozenset[int] = frozenset()
) -> tuple[Callable[..., list[torch.Tensor]], tuple[torch.Tensor, ...]]:
    """The call as a function of its tensors only, and these, both in their real form.

    Tensors that it changes are copied for it, and their new values are results after its own.
    """
    leaves, tree = pytree.tree_flatten(arguments)
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def function(*tensors: torch.Tensor) -> list[torch.Tensor]:
        filled = list(leaves)
        for number, (place, tensor) in enumerate(zip(places, tensors, strict=True)):
            given = torch.view_as_complex(tensor) if leaves[place].is_complex() else tensor
            filled[place] = given.clone() if number in changed else given
        first, rest, keywords = pytree.tree_unflatten(filled, tree)
        leaves_of = pytree.tree_leaves(call(first, *rest, **keywords))
        results = [leaf for leaf in leaves_of if isinstance(leaf, torch.Tensor)]
        results += [filled[places[number]] for number in sorted(changed)]
        return [_real(each) for each in results]

    return function, tuple(_real(leaves[place].detach()) for place in places)


def _real(tensor: torch.Tensor) -> torch.Tensor:
    """Complex numbers as pairs: the ends of a program are real."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


class Batch(torch.nn.Module):
    """Many samples as one model: all their tensors in, all their results out, in order."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        super().__init__()
        self.functions = [_named(sample, place) for place, sample in enumerate(samples)]
        self.counts = [len(sample.tensors) for sample in samples]

    def forward(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        """Results of every sample."""
        waiting, results = iter(tensors), []
        for function, count in zip(self.functions, self.counts, strict=True):
            results += function(*itertools.islice(waiting, count))
        return results


def _named(sample: Sample, place: int) -> Callable[..., list[torch.Tensor]]:
    """The sample's function under a name of its own, which a refusal then shows as the line's."""
    function: Any = sample.function
    code = function.__code__.replace(co_name=f"{NAME_PREFIX}{place}")
    closed = (function.__defaults__, function.__closure__)
    return types.FunctionType(code, function.__globals__, code.co_name, *closed)
