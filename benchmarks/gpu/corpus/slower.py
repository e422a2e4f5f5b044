"""Why a workload is slower than the best of its peers, or farther from the reference than eager
allows, and what would mend it."""

from __future__ import annotations

from collections.abc import Mapping

SLOWER: Mapping[str, str] = {
    "black_scholes": (
        "One kernel, bound by its instructions as far as these were counted, not profiled. "
        "torch.compile takes `1 + erf` for the normal distribution, of which nothing is left below "
        "-6; ours is `erfc`, which keeps those chances as eager does and takes more instructions. "
        "Quotients and roots are rounded as IEEE 754 asks, as eager's are."
    ),
    "unet_f32": (
        "Products of 64 and 128 columns by 1,152 and 2,304 terms reach 35 to 49 % of the data "
        "sheet's rate of TF32 (495 TFLOP/s), as untuned choices: with 64 columns each instruction "
        "reads as many bytes of shared memory as it can in its time. Warps that load beside warps "
        "that multiply would hide what loads cost."
    ),
}

UNEQUAL: Mapping[str, str] = {
    "repvgg_b0": (
        "one image of the eight, whose roundings this network of random weights enlarges; the same "
        "kernels run on a processor give the same, and each is right for what it reads"
    ),
}
