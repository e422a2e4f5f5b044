"""The tables of a matmul on a GPU: ways to walk, tiles, splits and blocks of few rows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Style:
    """How a form is written: its template, which operand gives the rows, how tiles are loaded."""

    name: str
    template: str
    is_swapped: bool = False
    has_descriptors: bool = False
    has_maps: bool = False  # descriptors that the launch makes, not the kernel

    @property
    def is_flat(self) -> bool:
        """Whether products are added up without tensor cores."""
        return self.template in ("gemv", "gemv_rows")


STYLES: dict[str, Style] = {
    row.name: row
    for row in (
        Style("plain", "plain"),
        Style("tensor", "plain", has_descriptors=True),
        Style("persistent", "persistent", has_descriptors=True),
        Style("mapped", "plain", has_descriptors=True, has_maps=True),
        Style("mapped_persistent", "persistent", has_descriptors=True, has_maps=True),
        Style("split", "split"),
        Style("split_mapped", "split", has_descriptors=True, has_maps=True),
        Style("swapped_mapped", "plain", is_swapped=True, has_descriptors=True, has_maps=True),
        Style("split_tensor", "split", has_descriptors=True),
        Style("swapped", "plain", is_swapped=True),
        Style("swapped_split", "split", is_swapped=True),
        Style("gemv", "gemv"),
        Style("gemv_rows", "gemv_rows"),
    )
}


@dataclass(frozen=True, slots=True)
class Tile:
    """BM, BN, BK, warps and stages of a program."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int


# 16-bit operands on tensor cores; depth and stages of wider ones are scaled by their bytes.
TILES: tuple[Tile, ...] = tuple(
    Tile(*row)
    for row in (
        (128, 256, 64, 8, 3),
        (256, 128, 64, 8, 3),
        (128, 256, 64, 8, 4),
        (128, 128, 64, 8, 4),
        (128, 128, 64, 8, 6),
        (128, 128, 64, 4, 3),
        (128, 128, 64, 4, 5),
        (128, 128, 128, 8, 3),
        (64, 256, 64, 4, 3),
        (64, 256, 64, 4, 5),
        (256, 64, 64, 8, 4),
        (128, 64, 64, 4, 4),
        (128, 64, 64, 4, 6),
        (128, 64, 64, 4, 8),
        (128, 64, 128, 4, 3),
        (64, 128, 64, 4, 4),
        (64, 128, 64, 4, 3),
        (64, 128, 64, 4, 6),
        (64, 128, 64, 4, 8),
        (64, 128, 128, 4, 4),
        (64, 128, 128, 4, 3),
        (64, 64, 64, 4, 4),
        (64, 64, 64, 4, 6),
        (64, 64, 128, 4, 4),
        (64, 64, 256, 4, 3),
        (64, 32, 128, 4, 4),
        (32, 64, 128, 4, 4),
        (32, 32, 128, 4, 4),
        (16, 64, 128, 4, 4),
        (16, 128, 64, 4, 4),
    )
)
# The weights are the rows here, the few rows of A the columns.
SWAPPED_TILES: tuple[Tile, ...] = tuple(
    Tile(rows, 0, depth, warps, stages)
    for rows, depth, warps, stages in (
        (64, 64, 4, 6),
        (64, 128, 4, 4),
        (64, 128, 4, 6),
        (64, 256, 4, 3),
        (64, 256, 4, 4),
        (128, 64, 4, 6),
        (128, 128, 4, 4),
        (32, 256, 4, 4),
        (16, 256, 2, 6),
        (16, 512, 4, 4),
    )
)
SPLITS = (2, 3, 4, 6, 8, 16)
# Columns, depth, warps, stages of a program without tensor cores.
GEMV_ALONG_DEPTH: tuple[tuple[int, int, int, int], ...] = (
    (1, 512, 1, 1),
    (1, 1024, 1, 1),
    (1, 1024, 2, 1),
    (1, 2048, 4, 1),
    (2, 512, 1, 1),
    (2, 512, 2, 1),
    (2, 1024, 2, 1),
    (2, 1024, 4, 1),
    (2, 2048, 4, 1),
    (4, 256, 1, 1),
    (4, 512, 2, 1),
    (4, 512, 4, 1),
    (4, 1024, 4, 1),
    (4, 1024, 4, 3),
    (4, 2048, 8, 1),
    (8, 256, 2, 1),
    (8, 256, 4, 1),
    (8, 512, 4, 1),
    (8, 512, 4, 3),
    (8, 1024, 8, 1),
    (16, 256, 4, 1),
    (16, 256, 4, 3),
)
GEMV_ALONG_COLUMNS: tuple[tuple[int, int, int, int], ...] = (
    (32, 64, 4, 1),
    (64, 32, 4, 1),
    (64, 64, 4, 1),
    (128, 32, 4, 1),
    (128, 16, 4, 1),
    (256, 16, 4, 1),
    (64, 128, 8, 1),
)
