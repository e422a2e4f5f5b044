"""Pack: plans, code and weights → a bundle directory that appears whole or not at all."""

from aotc.aot.pack.contents import (
    BackendContents,
    BundleContents,
    Golden,
    TargetContents,
    TensorData,
)
from aotc.aot.pack.pack import PackReport, pack

__all__ = [
    "BackendContents",
    "BundleContents",
    "Golden",
    "PackReport",
    "TargetContents",
    "TensorData",
    "pack",
]
