"""Random arrays of every type, with the values that break careless equations."""

from __future__ import annotations

from collections.abc import Callable

import numpy
import pytest

from aotc.aot.ir.graph import Constant, Graph
from aotc.aot.ir.storage import Array, narrow
from aotc.aot.ir.types import TensorType

SPECIAL = (numpy.nan, numpy.inf, -numpy.inf, 0.0, -0.0, 1.0, -1.0, 0.5, 1e18, -1e-30)


def random_array(kind: TensorType, generator: numpy.random.Generator, has_specials: bool) -> Array:
    """An array as it is stored; floats hold special values in about a third of the places."""
    if kind.kind == "bool":
        return generator.integers(0, 2, kind.shape).astype(bool)
    if kind.kind == "int":
        return narrow(generator.integers(-9, 9, kind.shape), kind.dtype)
    plain = generator.standard_normal(kind.shape) * 4
    if has_specials:
        special = generator.choice(SPECIAL, kind.shape)
        plain = numpy.where(generator.random(kind.shape) < 0.35, special, plain)
    return narrow(plain, kind.dtype)


def random_constant(name: str, kind: TensorType) -> Constant:
    """A constant that is the same each time: its name is the seed. Finite, as weights are."""
    seed = int.from_bytes(name.encode()[:8], "little")
    array = random_array(kind, numpy.random.default_rng(seed), has_specials=False)
    return Constant(name, kind, array)


@pytest.fixture
def fill() -> Callable[[str, TensorType], Constant]:
    """Makes the constants of a parsed graph."""
    return random_constant


@pytest.fixture
def random_inputs() -> Callable[..., list[Array]]:
    """`random_inputs(graph, seed, has_specials)`: arrays for the inputs of a graph."""

    def arrays(graph: Graph, seed: int, has_specials: bool = True) -> list[Array]:
        generator = numpy.random.default_rng(seed)
        return [random_array(node.type, generator, has_specials) for node in graph.inputs]

    return arrays
