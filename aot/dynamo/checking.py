"""`options={"check": "first"}`: the first call of each compiled graph beside eager.

A graph is compared where AOTAutograd gives it: forward and backward by themselves, what is drawn
already drawn. Numbers are judged as a build judges them; what the graph writes to is compared too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import GraphModule, Node

from aotc.aot.capture.golden import golden_tensors
from aotc.aot.capture.importer import to_array
from aotc.aot.capture.imports.call import DTYPE_NAMES
from aotc.aot.capture.random_inputs import spreads
from aotc.aot.capture.rounding_sensitivity import undecided
from aotc.aot.capture.source_lines import source_of
from aotc.aot.contents import ROUNDING_FACTOR, tolerances_of
from aotc.aot.dynamo.calling import Boxed
from aotc.aot.dynamo.errors import GraphDiffers
from aotc.aot.dynamo.fallback import log
from aotc.aot.dynamo.options import Options
from aotc.aot.dynamo.programs import counting
from aotc.aot.dynamo.random_ops import draws
from aotc.aot.dynamo.recipe import Recipe
from aotc.runtime.comparison import relative_difference

NARROW = (torch.float16, torch.bfloat16)


def checked(
    module: GraphModule, recipe: Recipe, call: Boxed, options: Options
) -> tuple[Recipe, Boxed]:
    """A graph unchanged, or with its first call compared. A compared graph is not cached for other
    processes, which would have no graph to compare with."""
    if options.check == "off":
        return recipe, call
    if any(map(draws, module.graph.nodes)):
        log.info("aotc: a graph is not compared with eager: it draws random numbers by itself")
        return recipe, call
    steps = tuple(replace(step, code=None) for step in recipe.steps)
    limits = tolerances_of(options.dot_precision)
    return replace(recipe, steps=steps), FirstCall(module, call, counting().graphs, limits)


class FirstCall:
    """A compiled graph; until a call has agreed with eager, each one is compared."""

    def __init__(
        self, module: GraphModule, call: Boxed, number: int, limits: Mapping[str, float]
    ) -> None:
        """limits: by element type, how far a result may be from eager's."""
        self._module: GraphModule | None = module
        self._call = call
        self._number = number
        self._limits = limits

    def __call__(self, arguments: list[Any]) -> Any:
        """Run once; `arguments` is empty afterwards. Raises `GraphDiffers`."""
        module = self._module
        if module is None:
            return self._call(arguments)
        given, before = list(arguments), _copies(arguments)
        found = self._call(arguments)
        self._compare(module, given, before, found)
        self._module = None
        return found

    def _compare(
        self, module: GraphModule, given: list[Any], before: list[Any], found: Sequence[Any]
    ) -> None:
        (output,) = module.graph.find_nodes(op="output")
        nodes = [*output.args[0], *module.graph.find_nodes(op="placeholder")]
        ours = list(map(_plain, (*found, *given)))
        rows = [row for row in zip(nodes, ours, strict=True) if isinstance(row[1], torch.Tensor)]

        def eager(leaves: list[Any]) -> list[Any]:
            arguments = _copies(leaves)
            return list(map(_plain, (*module(*arguments), *arguments)))

        with torch.no_grad():
            expected = golden_tensors(lambda: eager(before))
            failed = [
                (place, difference, limit)
                for place, (_, value) in enumerate(rows)
                for difference, limit in [
                    _differences(module, value, expected[place], self._limits)
                ]
                if not difference <= limit
            ]
            if not failed:
                return
            is_narrow = any(dtype in NARROW for dtype in _dtypes(module))
            carried = spreads(eager, before, expected, is_narrow)
            for place, difference, limit in failed:
                allowed = max(limit, ROUNDING_FACTOR * carried[place])
                if difference <= allowed:
                    continue
                pair = rows[place][1], expected[place]
                if not _is_decided_by_roundings(lambda: eager(before), place, *pair, allowed):
                    raise self._error(module, rows[place][0], difference, allowed)

    def _error(
        self, module: GraphModule, node: Node, difference: float, tolerance: float
    ) -> GraphDiffers:
        names = [each.name for each in module.graph.find_nodes(op="placeholder")]
        is_backward = any(name.startswith("tangents") for name in names)
        return GraphDiffers(
            number=self._number,
            kind="backward" if is_backward else "forward",
            name=node.name,
            difference=difference,
            tolerance=tolerance,
            source=_source(node),
        )


def _is_decided_by_roundings(
    call: Callable[[], list[Any]],
    place: int,
    found: torch.Tensor,
    expected: torch.Tensor,
    limit: float,
) -> bool:
    """Whether a result is within the limit except for elements that eager's rounding decides."""
    if (found.dtype, found.shape) != (expected.dtype, expected.shape):
        return False

    def one() -> torch.Tensor:
        tensors = [value for value in call() if isinstance(value, torch.Tensor)]
        return tensors[place]

    (mask,) = undecided(one, (to_array(expected),), (to_array(found),), (limit,))
    others = torch.where(torch.from_numpy(mask).to(found.device), expected, found)
    name = DTYPE_NAMES[expected.dtype]
    pair = (to_array(each).tobytes() for each in (others, expected))
    return relative_difference(name, *pair) <= limit


def _copies(values: Sequence[Any]) -> list[Any]:
    return [value.clone() if isinstance(value, torch.Tensor) else value for value in values]


def _plain(value: Any) -> Any:
    """A complex tensor as its parts."""
    is_complex = isinstance(value, torch.Tensor) and value.is_complex()
    return torch.view_as_real(value.resolve_conj()) if is_complex else value


def _differences(
    module: GraphModule, found: torch.Tensor, expected: torch.Tensor, limits: Mapping[str, float]
) -> tuple[float, float]:
    """Max error of a result relative to max |eager's|, and the limit of it."""
    name = DTYPE_NAMES.get(expected.dtype)
    if (found.dtype, found.shape) != (expected.dtype, expected.shape):
        return float("inf"), 0.0
    if name is None:  # a type that no program of ours has
        return 0.0, 0.0
    pair = (to_array(each).tobytes() for each in (found, expected))
    difference = relative_difference(name, *pair)
    known = (limits.get(DTYPE_NAMES.get(dtype, ""), 0.0) for dtype in _dtypes(module))
    return difference, max(known, default=0.0) if name in limits else 0.0


def _dtypes(module: GraphModule) -> Iterator[torch.dtype]:
    for node in module.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            yield value.dtype.to_real() if value.is_complex() else value.dtype


def _source(node: Node) -> str:
    """The user's line behind a node, or behind the nearest one that it is computed of."""
    seen, waiting = set(), [node]
    while waiting:
        each = waiting.pop(0)
        found = source_of(each)
        if found is not None:
            return str(found)
        new = [more for more in each.all_input_nodes if more not in seen]
        seen.update(new)
        waiting += new
    return "an unknown line"
