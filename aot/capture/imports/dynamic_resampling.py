"""Places and weights of resizing along a dim of dynamic size, as arithmetic.

They are rounded where torch rounds, as the tables of `resampling` are.
"""

from __future__ import annotations

from dataclasses import dataclass

from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, number
from aotc.aot.ir.size import Extent

CUBIC_SLOPE = -0.75  # torch's coefficient of the cubic convolution kernel
Weighted = list[tuple[Node, Node]]  # (place, weight) of each element that counts


@dataclass(frozen=True, slots=True)
class Resized:
    """One axis: `extent` elements become `wanted`, by `factor` where torch was given one."""

    extent: Extent
    wanted: Extent
    has_corners: bool
    factor: float | None

    def count(self, dtype: str) -> Node:
        """The numbers of the results."""
        return build.cast(build.iota((self.wanted,), 0), dtype)

    def step(self, dtype: str) -> Node:
        """Distance between results in elements, without corners aligned."""
        if self.factor is not None and self.factor > 0:
            return build.scalar(1.0 / self.factor, dtype)
        return number(self.extent, dtype) / number(self.wanted, dtype)

    def source(self, dtype: str) -> Node:
        """Where each result lies, in elements."""
        count = self.count(dtype)
        if self.has_corners:
            spaces = build.maximum(number(self.wanted, dtype) - 1.0, 1.0)
            step = (number(self.extent, dtype) - 1.0) / spaces
            return count * step
        return (count + 0.5) * self.step(dtype) - 0.5

    def inside(self, place: Node) -> Node:
        """A whole place as an index of an element, the nearest one where there is none."""
        last = number(self.extent, "i64") - 1
        at = build.maximum(build.cast(place, "i64"), 0)
        return build.minimum(at, last)


def dynamic_nearest(extent: Extent, wanted: Extent, factor: float | None, shift: float) -> Node:
    """Index of the element of each result; `shift` is added to its number."""
    axis = Resized(extent, wanted, False, factor)
    count = axis.count("f32")
    place = (count + shift if shift else count) * axis.step("f32")
    return axis.inside(build.unary("floor", place))


def dynamic_linear(axis: Resized, dtype: str) -> Weighted:
    """The two elements around each result."""
    at = build.maximum(axis.source(dtype), 0.0)
    low = axis.inside(build.unary("floor", at))
    share = build.minimum(at - build.cast(low, dtype), 1.0)
    high = axis.inside(low + 1)
    return [(low, 1.0 - share), (high, share)]


def dynamic_cubic(axis: Resized, dtype: str) -> Weighted:
    """The four elements around each result."""
    at = axis.source(dtype)
    base = build.unary("floor", at)
    weights = cubic_weights(at - base)
    first = build.cast(base, "i64") - 1
    return [(axis.inside(first + tap), weight) for tap, weight in enumerate(weights)]


def cubic_weights(share: Node) -> list[Node]:
    """Weights of the four elements around a place `share` after the second."""
    weights = [_far(share + 1.0), _near(share)]
    return [*weights, _near(1.0 - share), _far(2.0 - share)]


def _near(x: Node) -> Node:
    inner = x * (CUBIC_SLOPE + 2) - (CUBIC_SLOPE + 3)
    return inner * x * x + 1.0


def _far(x: Node) -> Node:
    inner = x * CUBIC_SLOPE - 5 * CUBIC_SLOPE
    outer = inner * x + 8 * CUBIC_SLOPE
    return outer * x - 4 * CUBIC_SLOPE
