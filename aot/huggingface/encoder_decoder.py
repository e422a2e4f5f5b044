"""Models of transformers with an encoder as three entry points over one cache.

`encode` runs the encoder and writes what each layer of the decoder attends to of it; `prefill`
begins the decoder's sequences, and `decode` goes on by one token of each, as of a causal model.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim
from transformers import EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from aotc.aot.huggingface.attention import (
    Batch,
    BufferCache,
    LayerStore,
    ProbeCache,
    Seen,
    SourceStore,
    as_argument,
    attending,
)
from aotc.aot.huggingface.causal import (
    STORE,
    Generation,
    Sizes,
    checked_slots,
    example_tokens,
    projecting_only,
)
from aotc.aot.huggingface.errors import NotSeq2Seq, SizesInvalid
from aotc.aot.huggingface.loading import SEQ2SEQ, SPEECH, is_seq2seq, load_model


class SourceGeneration(Generation):
    """And, of the source, keys and values of each layer, and lengths: i64[batch]."""

    source_lengths: Tensor

    def __init__(
        self, layers: nn.ModuleList, sources: nn.ModuleList, batch: int, vocabulary: int
    ) -> None:
        super().__init__(layers, batch, vocabulary)
        self.sources = sources
        lengths = torch.zeros(batch, dtype=torch.int64)
        self.register_buffer("source_lengths", lengths, persistent=False)


def seq2seq(
    model_or_folder: nn.Module | str | Path,
    *,
    max_length: int,
    max_source: int | None = None,
    batch: int = 1,
    dtype: torch.dtype | None = None,
    logits: bool = False,
) -> tuple[nn.Module, dict[str, dict[str, Any]]]:
    """A model with an encoder and a decoder, T5's or Whisper's, and its entry points.

    `max_source`: tokens of a source; Whisper's sources have the model's own length. Otherwise as
    `causal_lm` without sampling. `encode(ids, lengths, slots)`: i64[rows, length] padded on the
    right, i64[rows], i64[rows]; Whisper's `encode(features, slots)`: [rows, bins, frames]. Then
    `prefill(ids, lengths, slots)` and `decode(ids, positions)` as those of `causal_lm`, for the
    decoder's tokens, which begin with its start token.

    Raises `NotSeq2Seq`, `FolderInvalid`, `WeightsMissing`, `SizesInvalid`, `TransformersMissing`.
    """
    sizes = Sizes(batch, max_length, max_length)
    model = load_model(model_or_folder, dtype, (SEQ2SEQ, SPEECH))
    if not is_seq2seq(model):
        raise NotSeq2Seq(name=type(model).__name__)
    config = model.config
    is_speech = model.main_input_name == "input_features"
    longest = config.max_source_positions if is_speech else max_source
    if longest is None or longest < 2:
        raise SizesInvalid(**asdict(sizes), limit=longest)
    _add_store(model, sizes, longest)
    calls = SourceCalls(logits)
    taken = (
        _of_sound(calls, model, batch)
        if is_speech
        else _of_tokens(calls.encode, model, longest, batch)
    )
    first = min(max_length, 8)
    decode = {
        "ids": example_tokens(model, batch),
        "positions": torch.full((batch,), first),
    }
    return model, {
        "encode": taken,
        "prefill": _of_tokens(calls.prefill, model, max_length, batch),
        "decode": {"function": calls.decode, "example_inputs": decode},
    }


def _rows(batch: int) -> dict[int, Any]:
    return {0: Dim("rows", min=1, max=batch)} if batch > 1 else {}


def _of_tokens(function: Any, model: Any, longest: int, batch: int) -> dict[str, Any]:
    """An entry point of (ids, lengths, slots)."""
    rows, example = _rows(batch), min(longest, 8)
    return {
        "function": function,
        "example_inputs": {
            "ids": example_tokens(model, batch, example),
            "lengths": torch.full((batch,), example),
            "slots": torch.arange(batch),
        },
        "dynamic_shapes": {
            "ids": {**rows, 1: Dim("length", min=1, max=longest)},
            "lengths": rows or None,
            "slots": rows or None,
        },
    }


def _of_sound(calls: SourceCalls, model: Any, batch: int) -> dict[str, Any]:
    """An entry point of (features, slots)."""
    rows, config = _rows(batch), model.config
    frames = 2 * config.max_source_positions
    dtype = model.get_output_embeddings().weight.dtype
    features = torch.randn(
        (batch, config.num_mel_bins, frames), generator=torch.Generator().manual_seed(0)
    )
    return {
        "function": calls.encode_features,
        "example_inputs": {
            "features": features.to(dtype),
            "slots": torch.arange(batch),
        },
        "dynamic_shapes": {"features": rows or None, "slots": rows or None},
    }


def _add_store(model: Any, sizes: Sizes, longest: int) -> None:
    weight = model.get_output_embeddings().weight
    hidden = torch.zeros(1, 1, model.config.d_model, dtype=weight.dtype)
    kept, of_source = ProbeCache(), ProbeCache()
    with torch.no_grad():
        _probe(model, hidden, kept, of_source)

    def room(each: Tensor, length: int) -> Tensor:
        return each.new_zeros((sizes.batch, each.shape[1], length, each.shape[3]))

    layers, sources = (
        nn.ModuleList(
            kind(*(room(each, length) for each in cache.found[place]))
            for place in sorted(cache.found)
        )
        for kind, cache, length in (
            (LayerStore, kept, sizes.max_length),
            (SourceStore, of_source, longest),
        )
    )
    store = SourceGeneration(layers, sources, sizes.batch, weight.shape[0])
    del store.is_seen  # nothing is sampled
    model.add_module(STORE, store)


def _probe(model: Any, hidden: Tensor, kept: ProbeCache, of_source: ProbeCache) -> None:
    """Have the decoder's layers show what they keep, of its first token and of the source."""
    rows = hidden.shape[0]
    ids = torch.zeros(rows, 1, dtype=torch.int64)
    both = EncoderDecoderCache(kept, of_source)
    lengths = torch.ones(rows, dtype=torch.int64)
    batch = Batch(lengths * 0, ids, Seen.FRESH, lengths, of_source.keys)
    with attending(model, batch):
        _decoder(model, ids, batch, hidden, both)


def _decoder(model: Any, ids: Tensor, batch: Batch, hidden: Tensor, cache: Any) -> Any:
    named = {"decoder_position_ids": batch.positions}
    takes_positions = model.main_input_name == "input_features"
    return model(
        decoder_input_ids=ids,
        encoder_outputs=BaseModelOutput(last_hidden_state=hidden),
        use_cache=True,
        **as_argument(cache, model),
        **(named if takes_positions else {}),
    )


class SourceCalls:
    """The functions of the entry points; what a parameter is `seq2seq` says."""

    def __init__(self, with_logits: bool) -> None:
        self.with_logits = with_logits

    def encode(self, model: Any, ids: Tensor, lengths: Tensor, slots: Tensor) -> Tensor:
        """Take in sources of tokens; gives their lengths."""
        is_token = torch.arange(ids.shape[1]) < lengths[:, None]
        hidden = model.get_encoder()(input_ids=ids, attention_mask=is_token.long())[0]
        return self._keep(model, hidden, lengths, slots)

    def encode_features(self, model: Any, features: Tensor, slots: Tensor) -> Tensor:
        """Take in sources of sound; gives their lengths."""
        hidden = model.get_encoder()(features)[0]
        lengths = torch.zeros_like(slots) + hidden.shape[1]
        return self._keep(model, hidden, lengths, slots)

    def _keep(self, model: Any, hidden: Tensor, lengths: Tensor, slots: Tensor) -> Tensor:
        store = getattr(model, STORE)
        of_source = ProbeCache()
        _probe(model, hidden, ProbeCache(), of_source)
        slots = checked_slots(slots, store.source_lengths.shape[0])
        columns = torch.arange(hidden.shape[1])
        for place, each in enumerate(store.sources):
            keys, values = of_source.found[place]
            each.source_keys[slots[:, None], :, columns] = keys.transpose(1, 2)
            each.source_values[slots[:, None], :, columns] = values.transpose(1, 2)
        store.source_lengths[slots] = lengths
        return lengths.clone()

    def prefill(self, model: Any, ids: Tensor, lengths: Tensor, slots: Tensor) -> dict[str, Tensor]:
        """Begin the decoder's sequences; the most likely token follows."""
        positions = torch.arange(ids.shape[1]).expand(ids.shape)
        slots = checked_slots(slots, getattr(model, STORE).source_lengths.shape[0])
        return self._next(model, ids, slots, positions, Seen.FRESH, lengths - 1)

    def decode(self, model: Any, ids: Tensor, positions: Tensor) -> dict[str, Tensor]:
        """One more token of each sequence, the most likely one."""
        slots = torch.arange(ids.shape[0])
        last = torch.zeros_like(positions)
        return self._next(model, ids[:, None], slots, positions[:, None], Seen.ALL, last)

    def _next(
        self, model: Any, ids: Tensor, slots: Tensor, positions: Tensor, seen: Seen, last: Tensor
    ) -> dict[str, Tensor]:
        store = getattr(model, STORE)
        source = StoredSource(store.sources, slots, seen)
        lengths = store.source_lengths[slots]
        keys = tuple(each.keys for each in source.layers)
        batch = Batch(slots, positions, seen, lengths, keys)
        cache = EncoderDecoderCache(BufferCache(store.layers, batch), source)
        cache.is_updated = dict.fromkeys(range(len(keys)), True)
        hidden = keys[0].new_zeros((ids.shape[0], 1, model.config.d_model))
        with attending(model, batch), projecting_only(model, last):
            found = _decoder(model, ids, batch, hidden, cache)
        logits = found.logits[:, 0].float()
        tokens = logits.argmax(-1)
        return {"tokens": tokens, "logits": logits} if self.with_logits else {"tokens": tokens}


class StoredLayer:
    """Keys and values of the source, of the rows of one call."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.keys, self.values = keys, values


class StoredSource(ProbeCache):
    """What decoders read of a source that `encode` took in."""

    def __init__(self, sources: nn.ModuleList, slots: Tensor, seen: Seen) -> None:
        super().__init__()
        for each in sources:
            keys, values = each.source_keys, each.source_values
            if seen is not Seen.ALL:
                keys, values = keys[slots], values[slots]
            self.layers.append(StoredLayer(keys, values))
