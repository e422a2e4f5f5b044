"""Causal language models of transformers as two entry points over one cache.

`prefill` takes prompts of any length and writes their keys and values into the cache; `decode` takes
one token of each sequence and writes one more. Both give each sequence's next token. The cache, and
which tokens a sequence has had, are buffers of the model, which a bundle keeps as states.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from aotc.aot.huggingface.attention import (
    BufferCache,
    LayerStore,
    Places,
    ProbeCache,
    attending,
)
from aotc.aot.huggingface.loading import config_of, load_model
from aotc.aot.huggingface.errors import NotCausal, SizesInvalid
from aotc.aot.huggingface.sampling import Sampling, penalised, sample

STORE = "generation"  # the name of the module of states, inside the model


class Generation(nn.Module):
    """What a model keeps between calls: keys and values of each layer, and which tokens were seen.

    is_seen: bool[batch, vocabulary].
    """

    is_seen: Tensor

    def __init__(self, layers: nn.ModuleList, batch: int, vocabulary: int) -> None:
        super().__init__()
        self.layers = layers
        seen = torch.zeros(batch, vocabulary, dtype=torch.bool)
        self.register_buffer("is_seen", seen, persistent=False)


def causal_lm(
    model_or_folder: nn.Module | str | Path,
    *,
    max_length: int,
    batch: int = 1,
    max_prompt: int | None = None,
    dtype: torch.dtype | None = None,
    sampling: bool = True,
    logits: bool = False,
) -> tuple[nn.Module, dict[str, dict[str, Any]]]:
    """A causal language model of transformers and its entry points, for a spec file:

        model, entry_points = causal_lm("folder", max_length=2048, batch=8)

    `model_or_folder`: a model, or a folder with `config.json` and safetensors; nothing is downloaded.
    `max_length`: tokens that the cache holds of each sequence, the prompt's included. `batch`:
    sequences. `max_prompt`: the longest prompt, `max_length` where it is not given. `dtype`: of the
    weights, that of the folder where it is not given. Without `sampling` each token is the most likely
    one, and both entry points take no arguments for it. With `logits` they return those too.

    `prefill(ids, lengths, slots, …)`: i64[rows, length] padded on the right, i64[rows], and which
    sequences of the cache to begin, i64[rows]. `decode(ids, positions, …)`: i64[batch], each
    sequence's last token, and its place, i64[batch]. Then, each of one number a row: temperature
    (f32, 0: most likely), top_k (i64, 0: all), top_p (f32), repetition_penalty (f32), seed (i64).
    Both return {"tokens": i64[rows]} and, if asked, "logits": f32[rows, vocabulary].

    Raises `NotCausal`, `FolderInvalid`, `WeightsMissing`, `SizesInvalid`, `TransformersMissing`.
    """
    longest = max_length if max_prompt is None else max_prompt
    if not (1 <= batch and 2 <= longest <= max_length):
        raise SizesInvalid(max_length=max_length, max_prompt=longest, batch=batch)
    model = load_model(model_or_folder, dtype)
    _add_store(model, batch, max_length)
    return model, _entry_points(batch, longest, sampling, logits)


def _add_store(model: nn.Module, batch: int, max_length: int) -> None:
    """Give the model the buffers of its generation, of the shapes that its layers ask for."""
    config = config_of(model)
    limit = getattr(config, "max_position_embeddings", None)
    is_learned = any(
        isinstance(each, nn.Embedding) and each.num_embeddings == limit for each in model.modules()
    )
    if limit is not None and is_learned and max_length > limit:
        raise SizesInvalid(max_length=max_length, max_prompt=max_length, batch=batch, limit=limit)
    found = _probed(model)
    layers = nn.ModuleList(
        LayerStore(
            *(each.new_zeros((batch, each.shape[1], max_length, each.shape[3])) for each in kept)
        )
        for kept in found
    )
    vocabulary = model.get_output_embeddings().weight.shape[0]
    model.add_module(STORE, Generation(layers, batch, vocabulary))


def _probed(model: nn.Module) -> list[tuple[Tensor, Tensor]]:
    """Keys and values of one token, for each layer; raises NotCausal."""
    ids = torch.zeros(1, 1, dtype=torch.int64)
    cache = ProbeCache()
    places = Places(torch.zeros(1, dtype=torch.int64), ids, is_start=True)
    try:
        with torch.no_grad(), attending(model, places):
            model(input_ids=ids, position_ids=ids, past_key_values=cache, use_cache=True)
    except (TypeError, AttributeError, ValueError, KeyError) as error:
        detail = str(error).strip().split("\n")[0]
        raise NotCausal(name=type(model).__name__, detail=f"it does not run: {detail}") from error
    if sorted(cache.found) != list(range(len(cache.found))) or not cache.found:
        raise NotCausal(name=type(model).__name__, detail="not every layer keeps keys and values")
    return [cache.found[place] for place in sorted(cache.found)]


def _entry_points(
    batch: int, max_prompt: int, with_sampling: bool, with_logits: bool
) -> dict[str, dict[str, Any]]:
    rows = Dim("rows", min=1, max=batch) if batch > 1 else None
    length = Dim("length", min=1, max=max_prompt)
    options = ("temperature", "top_k", "top_p", "repetition_penalty", "seed")
    names = options if with_sampling else ()
    example = min(max_prompt, 8)
    rows_dim = {} if rows is None else {0: rows}
    prefill = {
        "ids": torch.zeros(batch, example, dtype=torch.int64),
        "lengths": torch.full((batch,), example),
        "slots": torch.arange(batch),
        **_example_options(names, batch),
    }
    decode = {
        "ids": torch.zeros(batch, dtype=torch.int64),
        "positions": torch.full((batch,), example),
        **_example_options(names, batch),
    }
    shapes: dict[str, Any] = dict.fromkeys(prefill, rows_dim or None)
    shapes["ids"] = {**rows_dim, 1: length}
    call = Calls(with_sampling, with_logits)
    return {
        "prefill": {
            "function": call.prefill if with_sampling else call.prefill_greedy,
            "example_inputs": prefill,
            "dynamic_shapes": shapes,
        },
        "decode": {
            "function": call.decode if with_sampling else call.decode_greedy,
            "example_inputs": decode,
        },
    }


def _example_options(names: tuple[str, ...], rows: int) -> Mapping[str, Tensor]:
    values = {
        "temperature": torch.full((rows,), 0.8),
        "top_k": torch.full((rows,), 40),
        "top_p": torch.full((rows,), 0.95),
        "repetition_penalty": torch.full((rows,), 1.1),
        "seed": torch.arange(rows),
    }
    return {name: values[name] for name in names}


class Calls:
    """The functions of the entry points; what a parameter is `causal_lm` says."""

    def __init__(self, with_sampling: bool, with_logits: bool) -> None:
        self.with_sampling = with_sampling
        self.with_logits = with_logits

    def prefill(
        self,
        model: Any,
        ids: Tensor,
        lengths: Tensor,
        slots: Tensor,
        temperature: Tensor,
        top_k: Tensor,
        top_p: Tensor,
        repetition_penalty: Tensor,
        seed: Tensor,
    ) -> dict[str, Tensor]:
        """Begin sequences, and sample the first token of each."""
        sampling = Sampling(temperature, top_k, top_p, repetition_penalty, seed)
        return self._prefill(model, ids, lengths, slots, sampling)

    def prefill_greedy(
        self, model: Any, ids: Tensor, lengths: Tensor, slots: Tensor
    ) -> dict[str, Tensor]:
        """Begin sequences; the most likely token follows."""
        return self._prefill(model, ids, lengths, slots, None)

    def decode(
        self,
        model: Any,
        ids: Tensor,
        positions: Tensor,
        temperature: Tensor,
        top_k: Tensor,
        top_p: Tensor,
        repetition_penalty: Tensor,
        seed: Tensor,
    ) -> dict[str, Tensor]:
        """One more token of each sequence, sampled."""
        sampling = Sampling(temperature, top_k, top_p, repetition_penalty, seed)
        return self._decode(model, ids, positions, sampling)

    def decode_greedy(self, model: Any, ids: Tensor, positions: Tensor) -> dict[str, Tensor]:
        """One more token of each sequence, the most likely one."""
        return self._decode(model, ids, positions, None)

    def _prefill(
        self, model: Any, ids: Tensor, lengths: Tensor, slots: Tensor, sampling: Sampling | None
    ) -> dict[str, Tensor]:
        store = getattr(model, STORE)
        rows, length = ids.shape
        positions = torch.arange(length).expand(rows, length)
        last = lengths - 1
        logits = _logits(model, ids, Places(slots, positions, is_start=True), last)
        if sampling is None:
            return self._results(logits, logits.argmax(-1))
        # Padding adds nothing: it counts as the row's first token again.
        tokens = torch.where(positions < lengths[:, None], ids, ids[:, :1])
        ones = torch.ones_like(tokens, dtype=torch.bool)
        is_seen = torch.zeros(rows, store.is_seen.shape[1], dtype=torch.bool)
        is_seen = is_seen.scatter(1, tokens, ones)
        store.is_seen[slots] = is_seen
        logits = penalised(logits, is_seen, sampling.repetition_penalty)
        return self._results(logits, sample(logits, lengths, sampling))

    def _decode(
        self, model: Any, ids: Tensor, positions: Tensor, sampling: Sampling | None
    ) -> dict[str, Tensor]:
        store = getattr(model, STORE)
        slots = torch.arange(ids.shape[0])
        places = Places(slots, positions[:, None], is_start=False)
        logits = _logits(model, ids[:, None], places, torch.zeros_like(positions))
        if sampling is None:
            return self._results(logits, logits.argmax(-1))
        store.is_seen[slots, ids] = True
        logits = penalised(logits, store.is_seen, sampling.repetition_penalty)
        return self._results(logits, sample(logits, positions + 1, sampling))

    def _results(self, logits: Tensor, tokens: Tensor) -> dict[str, Tensor]:
        return {"tokens": tokens, "logits": logits} if self.with_logits else {"tokens": tokens}


def _logits(model: Any, ids: Tensor, places: Places, last: Tensor) -> Tensor:
    """f32[rows, vocabulary]: those of each row's token at `last`, i64[rows]."""
    cache = BufferCache(getattr(model, STORE).layers, places)
    with attending(model, places), _projecting_only(model, last):
        found = model(
            input_ids=ids, position_ids=places.positions, past_key_values=cache, use_cache=True
        )
    return found.logits[:, 0].float()


@contextmanager
def _projecting_only(model: Any, last: Tensor) -> Iterator[None]:
    """Inside the block the output projection sees one token a row, as no other logits are read."""

    def taken(_: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        hidden = given[0]
        if hidden.shape[1] == 1:
            return given
        return (hidden[torch.arange(hidden.shape[0]), last][:, None], *given[1:])

    handle = model.get_output_embeddings().register_forward_pre_hook(taken)
    try:
        yield
    finally:
        handle.remove()
