"""AOTAutograd: from one of Dynamo's graphs to functional ATen graphs, forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition

from aotc.aot.dynamo.decompositions import decompositions

Compiler = Callable[[torch.fx.GraphModule, Sequence[Any]], Callable[[list[Any]], Any]]


def differentiated(
    module: Any, inputs: Sequence[Any], compile_graph: Compiler
) -> Callable[..., Any]:
    """The callable of a graph whose forward and backward parts `compile_graph` compiles."""

    def boxed(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[[list[Any]], Any]:
        call = compile_graph(graph, examples)

        def run(arguments: list[Any]) -> Any:
            return call(arguments)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    compiler = aot_autograd(
        fw_compiler=boxed,
        bw_compiler=boxed,
        inference_compiler=boxed,
        partition_fn=min_cut_rematerialization_partition,
        decompositions=decompositions(),
    )
    return compiler(module, inputs)  # type: ignore[no-any-return]
