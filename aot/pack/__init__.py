"""Pack: plans, code and weights → a bundle directory that appears whole or not at all."""

from aotc.aot.pack.bundle import PackReport, pack
from aotc.aot.pack.contents import (
    BackendContents,
    BundleContents,
    Golden,
    TargetContents,
    TensorData,
)

__all__ = [
    "BackendContents",
    "BundleContents",
    "Golden",
    "PackReport",
    "TargetContents",
    "TensorData",
    "pack",
]
