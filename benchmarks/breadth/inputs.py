"""Example inputs of a model that nobody described: by the names of its arguments.

Several sets are offered, the likeliest first; the first that the model runs on is taken.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch

BATCH, LENGTH, TARGET, FRAMES, SAMPLES = 2, 12, 6, 64, 4000
SEED = 7
IDS = ("input_ids", "decoder_input_ids")
NEEDED = ("bbox", "decoder_input_ids", "pixel_values", "input_features", "input_values")
SIDES = (32, 64, 224)  # of images whose size no config names


class Examples:
    """Tensors by argument name, for a model with a config."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.parts = [config, *_sub_configs(config)]
        self.side = SIDES[0]
        self.has_frames_first = False
        self.generator = torch.Generator().manual_seed(SEED)

    def sets(self, model: torch.nn.Module) -> Iterator[dict[str, Any]]:
        """Sets of keyword arguments to try on the model."""
        names = set(inspect.signature(model.forward).parameters)
        main = getattr(model, "main_input_name", "input_ids")
        mains = [main] if isinstance(main, str) else list(main)
        main, required = mains[0], [*mains[1:], *self._required(model)]
        more = [name for name in NEEDED if name in names and name not in mains]
        is_known = self._first("image_size", self._first("img_size", None))
        for side in SIDES[:1] if is_known else SIDES:
            self.side = side
            yield from self._once(main, required, more)
        if "input_features" in names:
            self.has_frames_first = True
            yield from self._once(main, required, more)
        if hasattr(model, "dummy_inputs"):
            yield dict(model.dummy_inputs)

    def _once(self, main: str, required: list[str], more: list[str]) -> Iterator[dict[str, Any]]:
        wanted = [[main], [main, *required], required]
        wanted += [[main, *required, name] for name in more] + [[main, *required, *more]]
        wanted += [["input_ids"], ["pixel_values"], ["input_ids", "pixel_values"]]
        seen = []
        for names in wanted:
            names = list(dict.fromkeys(names))
            if names and names not in seen:
                seen.append(names)
                made = {name: self.tensor(name) for name in names}
                if all(value is not None for value in made.values()):
                    yield made

    def _required(self, model: torch.nn.Module) -> list[str]:
        """Arguments without a default."""
        parameters = inspect.signature(model.forward).parameters.values()
        kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        return [
            each.name
            for each in parameters
            if each.default is inspect.Parameter.empty and each.kind not in kinds
        ]

    def tensor(self, name: str) -> Any:
        """What an argument of this name is given; None where nobody knows."""
        if name in IDS:
            length = LENGTH if name == "input_ids" else TARGET
            return self._integers((BATCH, length), self._smallest("vocab_size", 100))
        if name in ("pixel_values", "images", "flattened_patches", "pixels"):
            return self._pixels(())
        if name in ("pixel_values_videos", "videos"):
            return self._pixels((self._first("num_frames", 8),))
        if name == "bbox":
            return self._integers((BATCH, LENGTH, 2), 60).repeat(1, 1, 2).sort(-1).values
        if name == "task_inputs":
            return self._integers((BATCH, LENGTH), self._smallest("task_seq_len", 77))
        if name.endswith(("_features_mask", "_mel_mask")):
            return torch.ones(BATCH, FRAMES, dtype=torch.int64)
        if name in ("input_values", "waveform", "audio", "input_audio"):
            return self._floats((BATCH, SAMPLES))
        if name in ("input_features", "audio_features"):
            bins = self._first("num_mel_bins", self._first("feature_size", 80))
            frames = 2 * self._first("max_source_positions", FRAMES // 2)
            shape = (BATCH, frames, bins) if self.has_frames_first else (BATCH, bins, frames)
            return self._floats(shape)
        if name in ("inputs_embeds", "hidden_states"):
            return self._floats((BATCH, LENGTH, self._first("hidden_size", 64)))
        if name in ("attention_mask", "input_mask"):
            return torch.ones(BATCH, LENGTH, dtype=torch.int64)
        if name in ("past_values", "past_time_features", "past_observed_mask"):
            length = self._first("context_length", 32)
            channels = self._first("num_input_channels", self._first("input_size", 1))
            return self._floats((BATCH, length, channels))
        return None

    def _pixels(self, lead: tuple[int, ...]) -> torch.Tensor:
        side = self._first("image_size", self._first("img_size", self.side))
        height, width = side if isinstance(side, list | tuple) else (side, side)
        channels = self._first("num_channels", self._first("in_channels", 3))
        batch = 1 if height > 64 else BATCH
        return self._floats((batch, *lead, channels, height, width))

    def _first(self, name: str, default: Any) -> Any:
        found = (getattr(part, name, None) for part in self.parts)
        return next((value for value in found if value), default)

    def _smallest(self, name: str, default: int) -> int:
        found = [getattr(part, name, None) for part in self.parts]
        return min((value for value in found if type(value) is int), default=default)

    def _integers(self, shape: tuple[int, ...], high: int) -> torch.Tensor:
        return torch.randint(min(12, high // 2), high, shape, generator=self.generator)

    def _floats(self, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.randn(shape, generator=self.generator)


def _sub_configs(config: Any) -> Iterator[Any]:
    for value in vars(config).values():
        if hasattr(value, "model_type") and hasattr(value, "to_dict"):
            yield value
            yield from _sub_configs(value)
