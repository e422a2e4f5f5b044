"""Choosing the next token of each sequence, as operations of the compiled program.

The order is that of transformers: repetition penalty, temperature, top-k, top-p, one draw. Neither
limit sorts the vocabulary: the least logit that top-k keeps and the least probability that top-p
keeps are found by cutting their range into sixteen, eight times, each in one pass over the row. The
draw is the inverse of the cumulative distribution at one uniform number, which Philox 4x32-10 makes
of the sequence's own seed and the token's position, so that it depends on neither the batch nor the
place in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

PART_BITS = 4
PARTS = 1 << PART_BITS  # into which each round cuts what is left
ROUNDS = 8  # PARTS ** ROUNDS are the values of a 32-bit key
LOWEST_TEMPERATURE = 1e-5  # below it, and at 0, the most likely token is taken
UNIFORM_BITS = 23  # one less than f32 has, so that a product with a number below one is below it
PHILOX_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
PHILOX_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
PHILOX_ROUNDS = 10
WORD = 0xFFFFFFFF
RANGES = (
    "a number of the sampling is out of its range, expected temperature from 0, top_k from -1, "
    "top_p above 0 and at most 1, repetition_penalty above 0"
)


@dataclass(frozen=True, slots=True)
class Sampling:
    """How each sequence's next token is chosen; one number a sequence, all of shape [rows].

    temperature (f32): 0 for the most likely token. top_k (i64): 0 or -1 for all. top_p (f32), above
    0: 1 for all. repetition_penalty (f32), above 0: 1 for none. seed (i64): equal seeds give equal
    draws.
    """

    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    repetition_penalty: Tensor
    seed: Tensor


def penalised(logits: Tensor, is_seen: Tensor, penalty: Tensor) -> Tensor:
    """f32[rows, vocabulary]: logits of seen tokens divided by the penalty, or times it below 0.

    Keskar and others, 2019. `is_seen`: bool[rows, vocabulary], `penalty`: f32[rows].
    """
    weight = penalty[:, None]
    return torch.where(is_seen, torch.where(logits > 0, logits / weight, logits * weight), logits)


def sample(logits: Tensor, position: Tensor, sampling: Sampling) -> Tensor:
    """i64[rows]: the token that is drawn for each row of f32[rows, vocabulary].

    `position`, i64[rows], is the drawn token's place in its sequence. Raises `AssertionFailed` of a
    call, eager a `RuntimeError`, where a number of `sampling` is outside of its range.
    """
    torch._assert_async(_in_range(sampling).all(), RANGES)
    heat = sampling.temperature.clamp(min=LOWEST_TEMPERATURE)[:, None]
    scaled = logits / heat
    vocabulary = logits.shape[-1]
    count = torch.where(sampling.top_k > 0, sampling.top_k.clamp(max=vocabulary), vocabulary)
    kept = scaled >= _least_of_count(scaled, count)[:, None]
    weights = torch.softmax(torch.where(kept, scaled, -torch.inf), dim=-1)
    least = _least_of_mass(weights, sampling.top_p)
    weights = torch.where(weights >= least[:, None], weights, 0.0)
    running = weights.cumsum(-1)
    chosen = uniform(sampling.seed, position) * running[:, -1]
    drawn = (running <= chosen[:, None]).sum(-1).clamp(max=vocabulary - 1)  # NaN is not a token
    is_greedy = sampling.temperature < LOWEST_TEMPERATURE
    return torch.where(is_greedy, logits.argmax(-1), drawn)


def _in_range(sampling: Sampling) -> Tensor:
    """bool[rows]: whether all numbers are what vLLM takes; one that is NaN is in no range."""
    temperature, penalty = sampling.temperature, sampling.repetition_penalty
    is_limit = (sampling.top_k >= -1) & (sampling.top_p > 0) & (sampling.top_p <= 1)
    is_factor = (penalty > 0) & (penalty < torch.inf)
    return (temperature >= 0) & (temperature < torch.inf) & is_limit & is_factor


def _least_of_count(values: Tensor, count: Tensor) -> Tensor:
    """f32[rows]: the `count`-th largest value of each row; i64[rows] from 1 to the row's length."""
    keys = _ordered(values)
    lowest, highest = keys.amin(-1).long(), keys.amax(-1).long() + 1
    for _ in range(ROUNDS):
        above = (keys[:, None] >= _between(lowest, highest).int()[:, :, None]).sum(-1)
        lowest, highest = _narrowed(lowest, highest, above >= count[:, None])
    return _unordered(lowest.int())


def _least_of_mass(weights: Tensor, mass: Tensor) -> Tensor:
    """f32[rows]: the largest weight such that it and all larger ones sum to `mass`; the least
    weight where they never do."""
    keys = _ordered(weights)
    lowest, highest = keys.amin(-1).long(), keys.amax(-1).long() + 1
    for _ in range(ROUNDS):
        places = _between(lowest, highest).int()[:, :, None]
        above = torch.where(keys[:, None] >= places, weights[:, None], 0.0).sum(-1)
        lowest, highest = _narrowed(lowest, highest, above >= mass[:, None])
    return _unordered(lowest.int())


def _between(lowest: Tensor, highest: Tensor) -> Tensor:
    """i64[rows, PARTS - 1]: the places that cut each range into parts."""
    step = torch.arange(1, PARTS, device=lowest.device)
    return lowest[:, None] + ((highest - lowest)[:, None] * step >> PART_BITS)


def _narrowed(lowest: Tensor, highest: Tensor, is_reached: Tensor) -> tuple[Tensor, Tensor]:
    """The part of each range in which the condition, true below and false above, changes."""
    part, span = is_reached.sum(-1), highest - lowest
    return lowest + (span * part >> PART_BITS), lowest + (span * (part + 1) >> PART_BITS)


def _ordered(values: Tensor) -> Tensor:
    """i32 in the order of the f32 values: bits of negative numbers but the sign are inverted."""
    bits = values.view(torch.int32)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def _unordered(keys: Tensor) -> Tensor:
    """The f32 values of such keys."""
    return (keys ^ ((keys >> 31) & 0x7FFFFFFF)).view(torch.float32)


def uniform(seed: Tensor, position: Tensor) -> Tensor:
    """f32[rows] in [0, 1): the first word of Philox 4x32-10, key `seed`, counter (`position`, 0).

    Salmon and others, 2011. Both are i64[rows].
    """
    zero = torch.zeros_like(position)
    counter = [position & WORD, (position >> 32) & WORD, zero, zero]
    key = [seed & WORD, (seed >> 32) & WORD]
    for _ in range(PHILOX_ROUNDS):
        high_0, low_0 = _product(counter[0], PHILOX_MULTIPLIERS[0])
        high_1, low_1 = _product(counter[2], PHILOX_MULTIPLIERS[1])
        counter = [high_1 ^ counter[1] ^ key[0], low_1, high_0 ^ counter[3] ^ key[1], low_0]
        key = [(word + step) & WORD for word, step in zip(key, PHILOX_KEY_STEPS, strict=True)]
    return (counter[0] >> (32 - UNIFORM_BITS)).float() * 2.0**-UNIFORM_BITS


def _product(word: Tensor, factor: int) -> tuple[Tensor, Tensor]:
    """High and low word of a product of two 32-bit words, by halves: i64 has a sign."""
    low = word * (factor & 0xFFFF)
    high = word * (factor >> 16) + (low >> 16)
    return high >> 16, ((high << 16) | (low & 0xFFFF)) & WORD
