"""The models of the zoo by name."""

from __future__ import annotations

from benchmarks.zoo import language, other, sound, vision
from benchmarks.zoo.row import Row

ZOO: dict[str, Row] = {
    row.name: row
    for rows in (
        language.ENCODERS,
        language.DECODERS,
        language.PAIRS,
        sound.ROWS,
        vision.TRANSFORMERS,
        vision.CONVOLUTIONS,
        other.ROWS,
    )
    for row in rows
}
