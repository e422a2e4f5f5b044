"""Attention over caches that are buffers, in the words that models of transformers ask for it.

Models of transformers take their attention from a table by name and their cache as an object. For
the time of one call (`attending`) a model gets this table's row, which masks by each sequence's own
position, and a cache whose layers are buffers that the compiler keeps as states. Outside of a call
the model is as it was.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from aotc.aot.huggingface.errors import NotCausal

NAME = "aotc"  # of the row in transformers' table


class LayerStore(nn.Module):
    """Keys and values of one layer: [batch, heads, length, width]."""

    keys: Tensor
    values: Tensor

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        super().__init__()
        self.register_buffer("keys", keys, persistent=False)
        self.register_buffer("values", values, persistent=False)


class ProbeCache(Cache):  # type: ignore[misc]
    """Records the shapes of what each layer would keep: place → (keys, values)."""

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.found: dict[int, tuple[Tensor, Tensor]] = {}
        self.keys: list[Tensor] = []

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """What was given, recorded."""
        self.found[layer_idx] = (key_states, value_states)
        self.keys.append(key_states)
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """0: nothing is kept."""
        return 0


class SourceStore(nn.Module):
    """What one layer of a decoder attends to of its source: [batch, heads, length, width]."""

    source_keys: Tensor
    source_values: Tensor

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        super().__init__()
        self.register_buffer("source_keys", keys, persistent=False)
        self.register_buffer("source_values", values, persistent=False)


class Seen(Enum):
    """What a call's tokens attend to, up to their own places."""

    FRESH = "each other: they begin their sequences"
    OF_SLOTS = "the cache of their sequences"
    ALL = "the cache, whose sequences the rows are, in order"


@dataclass(frozen=True, slots=True)
class Batch:
    """The tokens of a call, by rows.

    slots: i64[rows], the sequences of the cache that the rows are. positions: i64[rows, length].
    seen: what the tokens attend to. source_lengths: i64[rows] behind an encoder, of the source;
    source_keys: those that are attended to whole, by identity. length: how many places of the cache
    are read, all where it is None.
    """

    slots: Tensor
    positions: Tensor
    seen: Seen
    source_lengths: Tensor | None = None
    source_keys: Sequence[Tensor] = ()
    length: int | None = None


_BATCH: ContextVar[Batch] = ContextVar("batch")
# What one layer computes for those after it: the bias of relative positions.
_SHARED: ContextVar[dict[str, Tensor]] = ContextVar("shared")


class BufferCache(Cache):  # type: ignore[misc]
    """A cache in transformers' sense over `LayerStore`s, for the tokens of one call."""

    def __init__(self, stores: nn.ModuleList, batch: Batch) -> None:
        super().__init__(layers=[])
        self.stores = stores
        self.batch = batch

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Write [rows, heads, length, width]; return what the call attends to."""
        store, batch = self.stores[layer_idx], self.batch
        slots = batch.slots[:, None]
        store.keys[slots, :, batch.positions] = key_states.transpose(1, 2)
        store.values[slots, :, batch.positions] = value_states.transpose(1, 2)
        if batch.seen is Seen.FRESH:
            return key_states, value_states
        if batch.seen is Seen.ALL:
            return store.keys[:, :, : batch.length], store.values[:, :, : batch.length]
        return store.keys[batch.slots], store.values[batch.slots]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """0: models are given positions, and have nothing to derive from the length."""
        return 0


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """[rows, length, heads, width] of query [rows, heads, length, width] over keys and values of
    [rows, heads / groups, width or the cache's length, width].

    `sliding_window`: how many tokens back are seen, with the token itself. `softcap`: scores are
    limited by a tanh. `s_aux`: [heads], a score for attending to nothing. `position_bias`: where it
    is there, the model has one of relative positions, computed at the sequences' own positions.
    Raises NotCausal.
    """
    is_seen, bias = _mask(module, key, sliding_window, position_bias is not None)
    rows, heads, length, width = query.shape
    groups = heads // key.shape[1]
    if bias is not None:
        is_seen = torch.where(is_seen, bias, -torch.inf)  # added to the scores
    if softcap is None and s_aux is None:
        mixed = _plain(query, key, value, is_seen, scaling, groups)
    else:
        scale = width**-0.5 if scaling is None else scaling
        scores = torch.matmul(query, _repeated(key, groups).transpose(2, 3)) * scale
        if softcap is not None:
            scores = torch.tanh(scores / softcap) * softcap
        scores = torch.where(is_seen, scores.float(), -torch.inf)
        if s_aux is not None:
            sink = s_aux.float().reshape(1, -1, 1, 1).expand(rows, heads, length, 1)
            scores = torch.cat([scores, sink], dim=-1)
        shares = torch.softmax(scores, dim=-1)[..., : key.shape[2]].to(value.dtype)
        mixed = torch.matmul(shares, _repeated(value, groups))
    return mixed.transpose(1, 2), None


def _mask(
    module: nn.Module, key: Tensor, sliding_window: int | None, is_biased: bool
) -> tuple[Tensor, Tensor | None]:
    """Which stored tokens are seen, bool[rows, 1, length or 1, stored], and what is added to their
    scores, [rows, heads, length, stored]."""
    batch, shared = _BATCH.get(), _SHARED.get()
    stored_at = torch.arange(key.shape[2], device=key.device)
    if any(key is each for each in batch.source_keys):
        assert batch.source_lengths is not None
        return stored_at < batch.source_lengths[:, None, None, None], None
    if not getattr(module, "is_causal", True):
        raise NotCausal(name=type(module).__name__, detail="its attention looks ahead")
    seen_at = batch.positions[:, None, :, None]
    is_seen = stored_at <= seen_at
    if sliding_window is not None:
        is_seen = is_seen & (stored_at > seen_at - sliding_window)
    if is_biased and getattr(module, "has_relative_attention_bias", False):
        shared["bias"] = _relative_bias(module, stored_at - batch.positions[:, :, None])
    return is_seen, shared["bias"] if is_biased else None


def _relative_bias(module: Any, distance: Tensor) -> Tensor:
    """[rows, heads, length, stored] of T5's buckets of distances, i64[rows, length, stored]."""
    buckets = module._relative_position_bucket(
        distance,
        bidirectional=False,
        num_buckets=module.relative_attention_num_buckets,
        max_distance=module.relative_attention_max_distance,
    )
    found: Tensor = module.relative_attention_bias(buckets).permute(0, 3, 1, 2)
    return found


def _plain(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    is_seen: Tensor,  # or what is added
    scaling: float | None,
    groups: int,
) -> Tensor:
    rows, heads, length, _ = query.shape
    if isinstance(length, int) and length == 1 and groups > 1:
        # One token: the queries of a group are rows of one product with the keys that they share.
        query = query.reshape(rows, heads // groups, groups, -1)
        mixed = nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=is_seen, scale=scaling
        )
        return mixed.reshape(rows, heads, 1, -1)
    return nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=is_seen, scale=scaling, enable_gqa=groups > 1
    )


def _repeated(data: Tensor, groups: int) -> Tensor:
    """Each head as often as query heads share it."""
    if groups == 1:
        return data
    # Heads are repeated beside each other in a row, where all extents are static: torch 2.11 takes
    # `repeat_interleave`'s order of dims for lengths of one range only.
    rows, heads, length, width = data.shape
    by_row = data.transpose(1, 2)[:, :, :, None].expand(rows, length, heads, groups, width)
    return by_row.reshape(rows, length, heads * groups, width).transpose(1, 2)


def as_argument(cache: Cache, model: nn.Module) -> dict[str, Cache]:
    """The cache under the name that the model's `forward` has for it: transformers 5.24 renamed
    `past_key_values`."""
    is_new = "cache" in inspect.signature(model.forward).parameters
    return {"cache" if is_new else "past_key_values": cache}


@contextmanager
def attending(model: nn.Module, batch: Batch) -> Iterator[None]:
    """Inside the block the model's attention is `attention`, for this batch."""
    ALL_ATTENTION_FUNCTIONS.register(NAME, attention)
    configs = list(
        {id(c): c for m in model.modules() if (c := getattr(m, "config", None))}.values()
    )
    names = [config._attn_implementation for config in configs]
    token, shared = _BATCH.set(batch), _SHARED.set({})
    for config in configs:
        config._attn_implementation_internal = NAME
    try:
        yield
    finally:
        for config, name in zip(configs, names, strict=True):
            config._attn_implementation_internal = name
        _SHARED.reset(shared)
        _BATCH.reset(token)
