"""The corpus: workloads by name, at the sizes of real use and at sizes for a test.

Networks of timm and transformers are made from their configs with random weights. `dtype` is what
floats and weights are converted to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from benchmarks.gpu.corpus import diffusion, programs
from benchmarks.zoo import inputs as of_zoo
from benchmarks.zoo.other import Recommender, Recurrent
from benchmarks.zoo.row import library, settled
from benchmarks.zoo.unet import UNet

Inputs = tuple[torch.Tensor, ...] | dict[str, torch.Tensor]
Sizes = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Workload:
    """A model's maker and the maker of its inputs, with their arguments at two sizes."""

    name: str
    make: Callable[..., nn.Module]
    inputs: Callable[..., Inputs]
    full: tuple[Sizes, Sizes]  # of the model, of the inputs
    small: tuple[Sizes, Sizes] | None = None  # None: only where the model's library is
    dtype: torch.dtype = torch.bfloat16
    fixed: Sizes = field(default_factory=dict)

    def made(self, is_full: bool) -> tuple[nn.Module, Inputs]:
        """The model in eval mode, and its inputs; raises ImportError without its library."""
        sizes = self.full if is_full or self.small is None else self.small
        torch.manual_seed(0)
        example = self.inputs(**sizes[1])
        model = settled(self.make(**self.fixed, **sizes[0]).eval(), example).eval()
        return model.to(self.dtype), _converted(example, self.dtype)


def _converted(example: Inputs, dtype: torch.dtype) -> Inputs:
    if isinstance(example, dict):
        return {name: _tensor(value, dtype) for name, value in example.items()}
    return tuple(_tensor(value, dtype) for value in example)


def _tensor(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return value.to(dtype) if value.is_floating_point() else value


def _numbers(*shapes: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(1)
    return tuple(torch.randn(shape, generator=generator) for shape in shapes)


def _positive(*shapes: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(x.abs() + 0.5 for x in _numbers(*shapes))


def _nodes(nodes: int, edges: int, width: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(1)
    return *_numbers((nodes, width)), torch.randint(0, nodes, (2, edges), generator=generator)


def _draws(rows: int, words: int) -> tuple[torch.Tensor, ...]:
    return *_numbers((rows, words)), torch.linspace(0.1, 0.9, rows)[:, None]


def _timm(name: str) -> nn.Module:
    import timm

    made: nn.Module = timm.create_model(name, pretrained=False)
    for parameter in made.parameters():  # the heads of some begin with zeros, and give nothing else
        if parameter.dim() > 1 and not parameter.any():
            nn.init.normal_(parameter, std=0.02)
    return made


def _program(function: Callable[..., Any]) -> Callable[[], nn.Module]:
    return lambda: programs.Program(function)


def _numeric(
    name: str, function: Callable[..., torch.Tensor], full: Sizes, small: Sizes,
    inputs: Callable[..., Inputs], dtype: torch.dtype = torch.float32,
) -> Workload:  # fmt: skip
    return Workload(name, _program(function), inputs, ({}, full), ({}, small), dtype)


def _of(*shapes: tuple[int, ...]) -> Sizes:
    return {"shapes": shapes}


def _randn(shapes: tuple[tuple[int, ...], ...]) -> Inputs:
    return _numbers(*shapes)


def _rand(shapes: tuple[tuple[int, ...], ...]) -> Inputs:
    return _positive(*shapes)


_TIMM = (
    "convnext_tiny", "efficientnet_b0", "mobilenetv3_large_100", "swin_tiny_patch4_window7_224",
    "resnext50_32x4d", "regnety_032", "densenet121", "mixer_b16_224", "deit_small_patch16_224",
    "repvgg_b0", "hrnet_w18", "xcit_tiny_12_p16_224",
)  # fmt: skip
_TEXT = (
    {"batch": 8, "length": 128, "vocabulary": 30000},
    {"batch": 2, "length": 16, "vocabulary": 99},
)
_TINY = {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
         "intermediate_size": 64}  # fmt: skip
_TINY_T5 = {
    "vocab_size": 100,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 64,
    "num_layers": 2,
    "num_heads": 4,
}
_TINY_BART = {"vocab_size": 100, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1,
              "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64,
              "decoder_ffn_dim": 64, "max_position_embeddings": 64}  # fmt: skip
_PAIR = ({"batch": 4, "length": 128, "target": 64, "vocabulary": 30000},
         {"batch": 2, "length": 16, "target": 8, "vocabulary": 99})  # fmt: skip

VISION = tuple(
    Workload(
        name, _timm, of_zoo.plane, ({}, {"batch": 8, "extent": 224}), None, fixed={"name": name}
    )
    for name in _TIMM
)
LANGUAGE = (
    Workload("distilbert", library("DistilBertModel", "DistilBertConfig"), of_zoo.text,
             ({}, _TEXT[0]), ({"vocab_size": 100, "dim": 32, "n_layers": 2, "n_heads": 4,
                               "hidden_dim": 64}, _TEXT[1])),
    Workload("electra", library("ElectraModel", "ElectraConfig"), of_zoo.text,
             ({}, _TEXT[0]), ({**_TINY, "embedding_size": 32}, _TEXT[1])),
    Workload("deberta", library("DebertaV2Model", "DebertaV2Config"), of_zoo.text,
             ({"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
               "intermediate_size": 3072, "relative_attention": True,
               "pos_att_type": ["p2c", "c2p"]}, _TEXT[0]),
             ({**_TINY, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}, _TEXT[1])),
    Workload("t5", library("T5Model", "T5Config", use_cache=False), of_zoo.text_pair,
             ({}, _PAIR[0]), (_TINY_T5, _PAIR[1])),
    Workload("bart", library("BartModel", "BartConfig", use_cache=False), of_zoo.text_pair,
             ({}, _PAIR[0]), (_TINY_BART, _PAIR[1])),
    Workload("mamba", library("MambaModel", "MambaConfig", use_cache=False), of_zoo.tokens,
             ({"num_hidden_layers": 2}, {"batch": 1, "length": 64, "vocabulary": 30000}),
             ({"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 1},
              {"batch": 1, "length": 8, "vocabulary": 99})),
    Workload("qwen2_moe", library("Qwen2MoeModel", "Qwen2MoeConfig", use_cache=False),
             of_zoo.tokens,
             ({"hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 16,
               "num_key_value_heads": 4, "moe_intermediate_size": 704, "intermediate_size": 2816,
               "shared_expert_intermediate_size": 2816, "num_experts": 16},
              {"batch": 1, "length": 256, "vocabulary": 30000}),
             ({**_TINY, "num_key_value_heads": 2, "moe_intermediate_size": 32, "num_experts": 4,
               "shared_expert_intermediate_size": 32},
              {"batch": 1, "length": 8, "vocabulary": 99})),
    Workload("wav2vec2", library("Wav2Vec2Model", "Wav2Vec2Config"), of_zoo.wave,
             ({}, {"batch": 4, "samples": 16000}),
             ({"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4,
               "intermediate_size": 64, "conv_dim": [16] * 7, "num_conv_pos_embeddings": 16,
               "num_conv_pos_embedding_groups": 4}, {"batch": 1, "samples": 4000})),
    Workload("segformer", library("SegformerForSemanticSegmentation", "SegformerConfig"),
             of_zoo.image, ({}, {"batch": 2, "extent": 512}), ({}, {"batch": 1, "extent": 64})),
)  # fmt: skip
NETWORKS = (
    Workload("unet", UNet, of_zoo.plane, ({"width": 64}, {"batch": 1, "extent": 512}),
             ({"width": 8, "depth": 2}, {"batch": 1, "extent": 32})),
    Workload("diffusion_unet", diffusion.DiffusionUNet, _randn,
             ({"widths": (320, 640, 1280), "heads": 8, "text": 768},
              _of((2, 4, 64, 64), (2, 320), (2, 77, 768))),
             ({"widths": (32, 64), "heads": 2, "text": 16},
              _of((1, 4, 8, 8), (1, 32), (1, 5, 16)))),
    Workload("dit", diffusion.DiT, _randn,
             ({"width": 1152, "heads": 16, "layers": 4}, _of((2, 1024, 1152), (2, 1152))),
             ({"width": 32, "heads": 2, "layers": 1}, _of((2, 16, 32), (2, 32)))),
    Workload("vae_decoder", diffusion.Decoder, _randn,
             ({"widths": (512, 512, 256, 128)}, _of((1, 4, 64, 64))),
             ({"widths": (32, 32)}, _of((1, 4, 8, 8)))),
    Workload("style", programs.StyleNet, _randn,
             ({"width": 32, "blocks": 5}, _of((4, 3, 256, 256))),
             ({"width": 4, "blocks": 1}, _of((1, 3, 32, 32)))),
    Workload("deeplab", programs.Segmenter, _randn,
             ({"inputs": 2048, "width": 256, "classes": 21}, _of((2, 2048, 64, 64))),
             ({"inputs": 8, "width": 4, "classes": 3}, _of((1, 8, 16, 16)))),
    Workload("heads", programs.Heads, _randn,
             ({"widths": (256, 512, 1024), "width": 256, "classes": 80, "best": 1000},
              _of((2, 256, 80, 80), (2, 512, 40, 40), (2, 1024, 20, 20))),
             ({"widths": (4, 8), "width": 4, "classes": 3, "best": 7},
              _of((2, 4, 8, 8), (2, 8, 4, 4)))),
    Workload("pointnet", programs.PointNet, _randn,
             ({"widths": (64, 128, 1024)}, _of((32, 3, 2048))),
             ({"widths": (8, 16)}, _of((2, 3, 33)))),
    Workload("kan", programs.SplineLayer, _randn,
             ({"inputs": 256, "outputs": 256}, _of((4096, 256))),
             ({"inputs": 7, "outputs": 5}, _of((9, 7))), dtype=torch.float32),
    Workload("graph", programs.GraphConvolution, _nodes,
             ({"width": 128}, {"nodes": 20000, "edges": 200000, "width": 128}),
             ({"width": 8}, {"nodes": 30, "edges": 90, "width": 8}), dtype=torch.float32),
    Workload("lstm", Recurrent, of_zoo.sequence,
             ({"kind": "LSTM", "width": 256, "hidden": 512, "layers": 2},
              {"batch": 8, "length": 32, "width": 256}),
             ({"kind": "LSTM", "width": 8, "hidden": 8, "layers": 1},
              {"batch": 2, "length": 4, "width": 8})),
    Workload("dlrm", Recommender, of_zoo.clicks,
             ({"dense": 13, "tables": 26, "rows": 100000, "width": 64, "hidden": 512},
              {"batch": 2048, "dense": 13, "tables": 26, "rows": 100000, "bag": 4}),
             ({"dense": 13, "tables": 4, "rows": 100, "width": 16, "hidden": 64},
              {"batch": 16, "dense": 13, "tables": 4, "rows": 100, "bag": 3})),
)  # fmt: skip
PROGRAMS = (
    _numeric("stencil", programs.stencil, _of((4096, 4096)), _of((33, 29)), _randn),
    _numeric("particles", programs.particles, _of((4096, 3), (4096, 3)), _of((33, 3), (33, 3)),
             _randn),
    _numeric("sample", programs.sample, {"rows": 32, "words": 50257}, {"rows": 3, "words": 51},
             _draws),
    _numeric("histogram", programs.histogram, _of((64, 262144)), _of((3, 301)), _randn),
    _numeric("columns", programs.columns, _of((262144, 64)), _of((301, 7)), _randn),
    _numeric("spectrum", programs.spectrum, _of((16, 160000)), _of((2, 2000)), _randn),
    _numeric("black_scholes", programs.black_scholes, _of(*[(1 << 24,)] * 3), _of(*[(1001,)] * 3),
             _rand),
)  # fmt: skip
# As users leave them who ask for no element type.
SINGLE = tuple(
    replace(row, name=f"{row.name}_f32", dtype=torch.float32)
    for row in (*VISION, *LANGUAGE, *NETWORKS)
    if row.name in ("resnext50_32x4d", "convnext_tiny", "deit_small_patch16_224", "distilbert",
                    "t5", "unet", "diffusion_unet", "deeplab")
)  # fmt: skip
CORPUS: dict[str, Workload] = {
    row.name: row for rows in (VISION, LANGUAGE, NETWORKS, PROGRAMS, SINGLE) for row in rows
}
