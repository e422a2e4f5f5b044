"""Why a workload is slower than the best of its peers, and what would mend it."""

from __future__ import annotations

from collections.abc import Mapping

SLOWER: Mapping[str, str] = {
    "spectrum": (
        "A transform of 512 is two products with tables, 32 by 32 numbers, as multiply-adds of "
        "f32: 234 of 309 us, where memory would take 34. Triton's multiply-adds reach about a "
        "tenth of the device's rate; split into TF32 they are not as exact as eager's "
        "(precision.md). A kernel of butterflies in registers, as cuFFT has them, would reach it."
    ),
    "sample": (
        "The sort is 8 digits of 4 bits, 28 to 31 us each and their counts, of 396 us; torch.sort "
        "takes 194 (H200, 2026-11-27, 85c2bc38, `.sort(-1, descending=True)` of 32 x 50,257 in "
        "turn, 50 calls). Each digit reads keys by the places so far and writes places one by one; "
        "elements of a tile in order before they are written, as in CUB's one sweep, would write "
        "runs."
    ),
    "unet_f32": (
        "Products of 64 and 128 columns by 1,152 and 2,304 terms reach 35 to 49 % of the data "
        "sheet's rate of TF32 (495 TFLOP/s), as untuned choices: with 64 columns each instruction "
        "reads as many bytes of shared memory as it can in its time. Warps that load beside warps "
        "that multiply would hide what loads cost."
    ),
}
