"""Rows of models that hear."""

from __future__ import annotations

from torch import nn

from benchmarks.zoo.inputs import spectrum, spectrum_and_text, wave
from benchmarks.zoo.row import Row, Size, library

_WHISPER = {
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "vocab_size": 512,
    "max_source_positions": 50,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}
_SPECTRUM = {"batch": 1, "bands": 80, "frames": 100}
_WAV2VEC2 = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "conv_dim": (32, 32, 32),
    "conv_stride": (5, 2, 2),
    "conv_kernel": (10, 3, 2),
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
}


def whisper_encoder(**sizes: object) -> nn.Module:
    """Whisper's encoder alone."""
    made: nn.Module = library("WhisperModel", "WhisperConfig")(**sizes).get_encoder()
    return made


ROWS = (
    Row(
        "whisper_encoder",
        whisper_encoder,
        spectrum,
        Size(_WHISPER, _SPECTRUM),
        Size({}, {**_SPECTRUM, "frames": 3000}),
    ),
    Row(
        "whisper",
        library("WhisperForConditionalGeneration", "WhisperConfig", use_cache=False),
        spectrum_and_text,
        Size(_WHISPER, {**_SPECTRUM, "target": 16, "vocabulary": 512}),
        Size({}, {**_SPECTRUM, "frames": 3000, "target": 32, "vocabulary": 50000}),
    ),
    Row(
        "wav2vec2",
        library("Wav2Vec2Model", "Wav2Vec2Config"),
        wave,
        Size(_WAV2VEC2, {"batch": 2, "samples": 2000}),
        Size({}, {"batch": 1, "samples": 16000}),
    ),
)
