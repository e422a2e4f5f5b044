"""Why a workload is slower than the best of its peers, and what would mend it."""

from __future__ import annotations

from collections.abc import Mapping

SLOWER: Mapping[str, str] = {
    "unet_f32": (
        "Products of 64 and 128 columns by 1,152 and 2,304 terms reach 35 to 49 % of the data "
        "sheet's rate of TF32 (495 TFLOP/s), as untuned choices: with 64 columns each instruction "
        "reads as many bytes of shared memory as it can in its time. Warps that load beside warps "
        "that multiply would hide what loads cost."
    ),
}
