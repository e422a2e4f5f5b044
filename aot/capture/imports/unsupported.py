"""Rows of ops that no bundle computes: each says why, and what to do instead."""

from __future__ import annotations

from typing import Any

from aotc.aot.capture.imports.call import Call, NotSupported, Row, Rows

RANDOM = (
    "it draws random numbers by a generator of its own, or in a way that no program draws: draw "
    "them outside of the model and pass them in"
)
COMPLEX = "complex numbers: write it with their real and imaginary parts"
GAMMA = "this function of the gamma family has no kernel: compute it outside of the model"
REASONS: dict[str, tuple[str, ...]] = {
    RANDOM: (
        "bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial",
        "native_dropout", "normal", "normal_functional", "rand", "rand_like", "randint",
        "randint_like", "randn", "randn_like", "randperm", "rrelu_with_noise_functional", "uniform",
    ),
    GAMMA: ("polygamma", "igamma", "igammac"),
    COMPLEX: ("_fft_c2c", "_fft_c2r", "_fft_r2c", "complex", "view_as_complex", "view_as_real"),
}  # fmt: skip


def _refusing(reason: str) -> Row:
    def row(call: Call, *arguments: Any) -> Any:
        raise NotSupported(reason)

    return row


ROWS: Rows = {name: _refusing(reason) for reason, names in REASONS.items() for name in names}
