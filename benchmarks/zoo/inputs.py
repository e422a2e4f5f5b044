"""Example inputs of the zoo's models, from a seed of their own."""

from __future__ import annotations

from typing import Any

import torch


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(1)


def _ids(batch: int, length: int, vocabulary: int) -> torch.Tensor:
    return torch.randint(3, vocabulary, (batch, length), generator=_generator())


def text(batch: int, length: int, vocabulary: int) -> dict[str, Any]:
    """Token ids i64[batch, length] and their mask; the last quarter is padding."""
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[:, length * 3 // 4 :] = 0
    return {"input_ids": _ids(batch, length, vocabulary), "attention_mask": mask}


def tokens(batch: int, length: int, vocabulary: int) -> dict[str, Any]:
    """Token ids i64[batch, length] without padding."""
    return {"input_ids": _ids(batch, length, vocabulary)}


def text_pair(batch: int, length: int, target: int, vocabulary: int) -> dict[str, Any]:
    """Token ids of an encoder i64[batch, length] and of a decoder i64[batch, target]."""
    return {
        **text(batch, length, vocabulary),
        "decoder_input_ids": _ids(batch, target, vocabulary),
    }


def image(batch: int, extent: int, channels: int = 3) -> dict[str, Any]:
    """Pixels f32[batch, channels, extent, extent]."""
    return {"pixel_values": plane(batch, extent, channels)[0]}


def plane(batch: int, extent: int, channels: int = 3) -> tuple[torch.Tensor]:
    """The same by position."""
    return (torch.randn(batch, channels, extent, extent, generator=_generator()),)


def image_and_text(batch: int, extent: int, length: int, vocabulary: int) -> dict[str, Any]:
    """Captions and pixels."""
    return {**text(batch, length, vocabulary), **image(batch, extent)}


def masked_image(batch: int, extent: int) -> dict[str, Any]:
    """Pixels and a mask i64[batch, extent, extent] of which of them count."""
    mask = torch.ones(batch, extent, extent, dtype=torch.int64)
    mask[:, :, extent * 3 // 4 :] = 0
    return {**image(batch, extent), "pixel_mask": mask}


def wave(batch: int, samples: int) -> dict[str, Any]:
    """A waveform f32[batch, samples]."""
    return {"input_values": torch.randn(batch, samples, generator=_generator())}


def spectrum(batch: int, bands: int, frames: int) -> dict[str, Any]:
    """A mel spectrogram f32[batch, bands, frames]."""
    return {"input_features": torch.randn(batch, bands, frames, generator=_generator())}


def spectrum_and_text(
    batch: int, bands: int, frames: int, target: int, vocabulary: int
) -> dict[str, Any]:
    """A mel spectrogram and token ids of a decoder."""
    decoder = {"decoder_input_ids": _ids(batch, target, vocabulary)}
    return {**spectrum(batch, bands, frames), **decoder}


def sequence(batch: int, length: int, width: int) -> tuple[torch.Tensor]:
    """A sequence f32[batch, length, width]."""
    return (torch.randn(batch, length, width, generator=_generator()),)


def clicks(batch: int, dense: int, tables: int, rows: int, bag: int) -> tuple[torch.Tensor, ...]:
    """Dense features f32[batch, dense] and bags of ids i64[tables, batch, bag]."""
    generator = _generator()
    features = torch.rand(batch, dense, generator=generator)
    return features, torch.randint(0, rows, (tables, batch, bag), generator=generator)
