"""Causal language models of transformers as two entry points over one cache.

`prefill` takes prompts of any length and writes their keys and values into the cache; `decode`
takes one token of each sequence and writes one more. Both give each sequence's next token. The
cache, and which tokens a sequence has had, are buffers of the model, which a bundle keeps as
states.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from aotc.aot.capture.distinct_values import distinct
from aotc.aot.huggingface.attention import (
    Batch,
    BufferCache,
    LayerStore,
    ProbeCache,
    Seen,
    as_argument,
    attending,
)
from aotc.aot.huggingface.errors import DecodeLengthsInvalid, NotCausal, SizesInvalid
from aotc.aot.huggingface.loading import CAUSAL, config_of, load_model
from aotc.aot.huggingface.sampling import Sampling, penalised, sample

EXAMPLE_BATCH, EXAMPLE_LENGTH = 2, 512  # of sessions that name no sizes, where these vary
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
    session_sizes: bool = False,
    decode_lengths: Sequence[int] = (),
) -> tuple[nn.Module, dict[str, dict[str, Any]]]:
    """A causal language model of transformers and its entry points, for a spec file:

        model, entry_points = causal_lm("folder", max_length=2048, batch=8)

    `model_or_folder`: a model, or a folder with `config.json` and safetensors; nothing is
    downloaded. `max_length`: tokens that the cache holds of each sequence, the prompt's included.
    `batch`: sequences. `max_prompt`: the longest prompt, `max_length` where it is not given.
    `dtype`: of the weights, that of the folder where it is not given. Without `sampling` each token
    is the most likely one, and both entry points take no arguments for it. With `logits` they
    return those too. With `session_sizes` each session has sizes of its own, up to `batch` and
    `max_length`: `program.session(batch=4, length=512)`; one that names none has the example's, at
    most 2 sequences of 512. For each N of the `decode_lengths`, not for `session_sizes`, an entry
    point `decode_N` reads the first N places of the cache alone; positions have to be below N.

    `prefill(ids, lengths, slots, …)`: i64[rows, length] padded on the right, i64[rows], and which
    sequences of the cache to begin, i64[rows]. `decode(ids, positions, …)`: i64[batch], each
    sequence's last token, and its position, i64[batch]. Then, each of one number a row: temperature
    (f32, 0: most likely), top_k (i64, 0: all), top_p (f32), repetition_penalty (f32), seed (i64).
    Both return {"tokens": i64[rows]} and, if asked, "logits": f32[rows, vocabulary].

    Raises `NotCausal`, `FolderInvalid`, `WeightsMissing`, `SizesInvalid`, `DecodeLengthsInvalid`,
    `TransformersMissing`.
    """
    sizes = Sizes(batch, max_length, max_prompt or max_length)
    _check_decode_lengths(decode_lengths, 0 if session_sizes else max_length, max_length)
    model = load_model(model_or_folder, dtype, (CAUSAL,))
    rows, length = sizes.of_example() if session_sizes else (batch, max_length)
    _add_store(model, sizes, rows, length)
    calls = Calls(logits)
    prefill, shapes = _prompt_example(model, sizes, {"lengths": min(sizes.max_prompt, 8)}, rows)
    options = _example_options(rows) if sampling else {}
    decode = {**_decode_example(model, sizes, rows), **options}
    states = _state_shapes(model, sizes) if session_sizes else None
    return model, {
        "prefill": {
            "function": calls.prefill if sampling else calls.prefill_greedy,
            "example_inputs": {**prefill, **options},
            "dynamic_shapes": {**shapes, **dict.fromkeys(options, shapes["lengths"])},
            "state_shapes": states,
        },
        "decode": {
            "function": calls.decode if sampling else calls.decode_greedy,
            "example_inputs": decode,
            "dynamic_shapes": _batched(decode, sizes) if session_sizes else None,
            "state_shapes": states,
        },
        **_shorter(decode_lengths, logits, sampling, decode),
    }


def _check_decode_lengths(lengths: Sequence[int], limit: int, max_length: int) -> None:
    """Raise `DecodeLengthsInvalid` unless all differ, from 1 to below the limit."""
    if len({each for each in lengths if 1 <= each < limit}) != len(lengths):
        raise DecodeLengthsInvalid(lengths=list(lengths), most=max_length - 1)


def _shorter(
    lengths: Sequence[int], logits: bool, sampling: bool, decode: Mapping[str, Tensor]
) -> dict[str, dict[str, Any]]:
    """The entry points of decodes that read the beginning of the cache alone."""
    found = {}
    for length in lengths:
        calls = Calls(logits, length)
        positions = decode["positions"].clamp(max=length - 1)
        found[f"decode_{length}"] = {
            "function": calls.decode if sampling else calls.decode_greedy,
            "example_inputs": {**decode, "positions": positions},
        }
    return found


def _batched(decode: Mapping[str, Tensor], sizes: Sizes) -> dict[str, Any] | None:
    """The dynamic shapes of a decode whose batch a session fixes."""
    every = {0: _session_batch(sizes)}
    return dict.fromkeys(decode, every) if sizes.batch > 1 else None


def _session_batch(sizes: Sizes) -> Any:
    return Dim("batch", min=1, max=sizes.batch)


def _state_shapes(model: nn.Module, sizes: Sizes) -> dict[str, dict[int, Any]]:
    """The dims of the states that a session fixes: how many sequences and how long."""
    batch = {0: _session_batch(sizes)} if sizes.batch > 1 else {}
    length = Dim("length", min=2, max=sizes.max_length)
    found = {}
    for name, buffer in getattr(model, STORE).named_buffers():
        found[f"{STORE}.{name}"] = {**batch, 2: length} if buffer.dim() == 4 else batch
    return {name: dims for name, dims in found.items() if dims}


def causal_step(
    model_or_folder: nn.Module | str | Path,
    *,
    max_length: int,
    batch: int = 1,
    max_prompt: int | None = None,
    dtype: torch.dtype | None = None,
    sampling: bool = True,
    logits: bool = False,
) -> tuple[nn.Module, dict[str, Tensor], dict[str, Any]]:
    """The same as one program, for prompts, parts of prompts and single tokens:

        model, example_inputs, dynamic_shapes = causal_step("folder", max_length=2048, batch=8)

    `program(ids, starts, lengths, slots, …)`: i64[rows, length] padded on the right; how many
    tokens of its sequence the cache has, i64[rows], 0 to begin it; how many of the row count,
    i64[rows], at least 1; which sequences of the cache they are, i64[rows], each once. Each row's
    tokens attend to all of its sequence. Arguments, results and errors are otherwise those of
    `causal_lm`.
    """
    sizes = Sizes(batch, max_length, max_prompt or max_length)
    model = load_model(model_or_folder, dtype, (CAUSAL,))
    _add_store(model, sizes, batch, max_length)
    firsts = {"starts": 0, "lengths": min(sizes.max_prompt, 8)}
    example, shapes = _prompt_example(model, sizes, firsts, batch)
    options = _example_options(batch) if sampling else {}
    shapes |= dict.fromkeys(options, shapes["lengths"])
    kind = SampledStep if sampling else GreedyStep
    return kind(model, Calls(logits)), {**example, **options}, shapes


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many sequences, how long, and how long their prompts are; raises SizesInvalid."""

    batch: int
    max_length: int
    max_prompt: int

    def __post_init__(self) -> None:
        if not (self.batch >= 1 and 2 <= self.max_prompt <= self.max_length):
            raise SizesInvalid(**asdict(self))

    def of_example(self) -> tuple[int, int]:
        """Sequences and length of the example, where sessions have sizes of their own."""
        return min(self.batch, EXAMPLE_BATCH), min(self.max_length, EXAMPLE_LENGTH)


def example_tokens(model: Any, *shape: int) -> Tensor:
    """i64[shape]: tokens from all of the vocabulary. Its first is often the padding, whose row in
    the table is zero: golden numbers of it would show nothing."""
    vocabulary = model.get_input_embeddings().weight.shape[0]
    count = math.prod(shape)
    tokens = 1 + torch.arange(count) * max(1, vocabulary // count)
    return (tokens % vocabulary).reshape(shape)


def _prompt_example(
    model: Any, sizes: Sizes, rows_of: Mapping[str, int], count: int
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Example inputs of `count` rows and dynamic shapes of a call with several positions."""
    example = {
        "ids": example_tokens(model, count, min(sizes.max_prompt, 8)),
        **{name: torch.full((count,), value) for name, value in rows_of.items()},
        "slots": torch.arange(count),
    }
    rows = {0: Dim("rows", min=1, max=sizes.batch)} if sizes.batch > 1 else {}
    shapes: dict[str, Any] = dict.fromkeys(example, rows or None)
    shapes["ids"] = {**rows, 1: Dim("tokens", min=1, max=sizes.max_prompt)}
    return example, shapes


def _decode_example(model: Any, sizes: Sizes, rows: int) -> dict[str, Tensor]:
    positions = torch.full((rows,), min(sizes.max_prompt, 8))
    return {"ids": example_tokens(model, rows), "positions": positions}


def _example_options(rows: int) -> dict[str, Tensor]:
    return {
        "temperature": torch.full((rows,), 0.8),
        "top_k": torch.full((rows,), 40),
        "top_p": torch.full((rows,), 0.95),
        "repetition_penalty": torch.full((rows,), 1.1),
        "seed": torch.arange(rows),
    }


def _add_store(model: Any, sizes: Sizes, batch: int, length: int) -> None:
    """Add the buffers of its generation, of the shapes that the model's layers ask for."""
    config = config_of(model)
    limit = getattr(config, "max_position_embeddings", None)
    tables = [each for each in model.modules() if isinstance(each, nn.Embedding)]
    is_learned = limit is not None and any(
        limit <= each.num_embeddings <= limit + 2 for each in tables
    )
    if is_learned and sizes.max_length > limit:
        raise SizesInvalid(limit=limit, **asdict(sizes))

    def room(each: Tensor) -> Tensor:
        return each.new_zeros((batch, each.shape[1], length, each.shape[3]))

    layers = nn.ModuleList(LayerStore(room(keys), room(values)) for keys, values in _probed(model))
    vocabulary = model.get_output_embeddings().weight.shape[0]
    model.add_module(STORE, Generation(layers, batch, vocabulary))


def _probed(model: nn.Module) -> list[tuple[Tensor, Tensor]]:
    """Keys and values of one token, for each layer; raises NotCausal."""
    ids = torch.zeros(1, 1, dtype=torch.int64)
    cache = ProbeCache()
    batch = Batch(torch.zeros(1, dtype=torch.int64), ids, Seen.FRESH)
    try:
        with torch.no_grad(), attending(model, batch):
            model(input_ids=ids, position_ids=ids, use_cache=True, **as_argument(cache, model))
    except IndexError:  # a layer asked for another kind of state, such as a convolution's
        cache.found.clear()
    except (TypeError, AttributeError, ValueError, KeyError) as error:
        detail = str(error).strip().split("\n")[0]
        raise NotCausal(name=type(model).__name__, detail=f"it does not run: {detail}") from error
    if sorted(cache.found) != list(range(len(cache.found))) or not cache.found:
        raise NotCausal(name=type(model).__name__, detail="not every layer keeps keys and values")
    return [cache.found[place] for place in sorted(cache.found)]


class Calls:
    """The functions of the entry points; what a parameter is `causal_lm` says.

    length: how many places of the cache a decode reads, all where it is None.
    """

    def __init__(self, with_logits: bool, length: int | None = None) -> None:
        self.with_logits, self.length = with_logits, length

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

    def extend(
        self,
        model: Any,
        ids: Tensor,
        starts: Tensor,
        lengths: Tensor,
        slots: Tensor,
        sampling: Sampling | None,
    ) -> dict[str, Tensor]:
        """More tokens of some sequences, and the one after them."""
        store = getattr(model, STORE)
        rows, length = ids.shape
        slots = checked_slots(slots, store.is_seen.shape[0])
        # Padding is the row's last token once more, with its place: it changes nothing.
        last = _checked(lengths - 1, length)
        columns = torch.minimum(torch.arange(length).expand(rows, length), last[:, None])
        ids, positions = ids.gather(1, columns), starts[:, None] + columns
        logits = _logits(model, ids, Batch(slots, positions, Seen.OF_SLOTS), last)
        if sampling is None:
            return self._results(logits, logits.argmax(-1))
        seen_before = store.is_seen[slots] & (starts > 0)[:, None]
        is_seen = seen_before | _seen(ids, lengths, store.is_seen.shape[1])
        store.is_seen[slots] = is_seen
        logits = penalised(logits, is_seen, sampling.repetition_penalty)
        return self._results(logits, sample(logits, starts + lengths, sampling))

    def _prefill(
        self, model: Any, ids: Tensor, lengths: Tensor, slots: Tensor, sampling: Sampling | None
    ) -> dict[str, Tensor]:
        store = getattr(model, STORE)
        rows, length = ids.shape
        positions = torch.arange(length).expand(rows, length)
        last = _checked(lengths - 1, length)
        slots = checked_slots(slots, store.is_seen.shape[0])
        logits = _logits(model, ids, Batch(slots, positions, Seen.FRESH), last)
        if sampling is None:
            return self._results(logits, logits.argmax(-1))
        is_seen = _seen(ids, lengths, store.is_seen.shape[1])
        store.is_seen[slots] = is_seen
        logits = penalised(logits, is_seen, sampling.repetition_penalty)
        return self._results(logits, sample(logits, lengths, sampling))

    def _decode(
        self, model: Any, ids: Tensor, positions: Tensor, sampling: Sampling | None
    ) -> dict[str, Tensor]:
        store = getattr(model, STORE)
        slots = torch.arange(ids.shape[0])
        length = self.length or store.layers[0].keys.shape[2]
        positions = _checked(positions, length)
        batch = Batch(slots, positions[:, None], Seen.ALL, length=self.length)
        logits = _logits(model, ids[:, None], batch, torch.zeros_like(positions))
        if sampling is None:
            return self._results(logits, logits.argmax(-1))
        store.is_seen[slots, ids] = True
        logits = penalised(logits, store.is_seen, sampling.repetition_penalty)
        return self._results(logits, sample(logits, positions + 1, sampling))

    def _results(self, logits: Tensor, tokens: Tensor) -> dict[str, Tensor]:
        return {"tokens": tokens, "logits": logits} if self.with_logits else {"tokens": tokens}


def _checked(places: Tensor, count: int) -> Tensor:
    """i64[rows] as they are; one that is not in 0 to `count` - 1 is an error of the call's data:
    plain indices would count those below 0 from the end."""
    return torch.arange(count).index_select(0, places)


def checked_slots(slots: Tensor, count: int) -> Tensor:
    """i64[rows] as they are; a slot beyond `count`, or given twice, is an error of the call's data:
    rows of one slot would write keys and values of several sequences into one."""
    return distinct(_checked(slots, count), "two rows of a call have the same slot")


def _seen(ids: Tensor, lengths: Tensor, vocabulary: int) -> Tensor:
    """bool[rows, vocabulary]: which tokens are among the first `lengths` of each row of `ids`."""
    # Padding adds nothing: it counts as the row's first token again.
    is_token = torch.arange(ids.shape[1]) < lengths[:, None]
    tokens = torch.where(is_token, ids, ids[:, :1])
    none = torch.zeros(ids.shape[0], vocabulary, dtype=torch.bool)
    return none.scatter(1, tokens, torch.ones_like(tokens, dtype=torch.bool))


class GreedyStep(nn.Module):
    """`causal_step` without sampling."""

    def __init__(self, model: nn.Module, calls: Calls) -> None:
        super().__init__()
        # Children of the model are this module's own, so that its parameters keep their names.
        for name, child in model.named_children():
            self.add_module(name, child)
        object.__setattr__(self, "language_model", model)
        self.calls = calls

    def forward(
        self, ids: Tensor, starts: Tensor, lengths: Tensor, slots: Tensor
    ) -> dict[str, Tensor]:
        return self.calls.extend(self.language_model, ids, starts, lengths, slots, None)


class SampledStep(GreedyStep):
    """`causal_step` with sampling."""

    def forward(  # type: ignore[override]
        self,
        ids: Tensor,
        starts: Tensor,
        lengths: Tensor,
        slots: Tensor,
        temperature: Tensor,
        top_k: Tensor,
        top_p: Tensor,
        repetition_penalty: Tensor,
        seed: Tensor,
    ) -> dict[str, Tensor]:
        sampling = Sampling(temperature, top_k, top_p, repetition_penalty, seed)
        return self.calls.extend(self.language_model, ids, starts, lengths, slots, sampling)


def _logits(model: Any, ids: Tensor, batch: Batch, last: Tensor) -> Tensor:
    """f32[rows, vocabulary]: those of each row's token at `last`, i64[rows]."""
    cache = BufferCache(getattr(model, STORE).layers, batch)
    with attending(model, batch), projecting_only(model, last):
        named = as_argument(cache, model)
        found = model(input_ids=ids, position_ids=batch.positions, use_cache=True, **named)
    return found.logits[:, 0].float()


@contextmanager
def projecting_only(model: Any, last: Tensor) -> Iterator[None]:
    """Inside the block the output projection sees one token a row, as no other logits are read."""

    def taken(_: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        hidden = given[0]
        if type(hidden.shape[1]) is int and hidden.shape[1] == 1:  # of one size, not of several
            return given
        return (hidden[torch.arange(hidden.shape[0]), last][:, None], *given[1:])

    handle = model.get_output_embeddings().register_forward_pre_hook(taken)
    try:
        yield
    finally:
        handle.remove()
