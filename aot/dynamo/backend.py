"""`backend="aotc"`: AOTAutograd's graphs, forward and backward, through our stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from aotc.aot.capture.aten_graph import import_aten, refusals
from aotc.aot.capture.importing import NotSupported
from aotc.aot.capture.sizes import Sizes
from aotc.aot.dynamo.autograd import differentiated
from aotc.aot.dynamo.calling import Boxed, Call
from aotc.aot.dynamo.counting import counting
from aotc.aot.dynamo.fallback import leave
from aotc.aot.dynamo.interface import interface_of
from aotc.aot.dynamo.options import Options, read_options
from aotc.aot.dynamo.programs import key_of, program_of
from aotc.runtime import AotcError


def compiled(
    module: Any, inputs: Sequence[Any], options: Mapping[str, Any] | None
) -> Callable[..., Any]:
    """The callable of one of Dynamo's graphs; raises `OptionUnknown` and `OptionInvalid`."""
    chosen = read_options(options)
    return differentiated(
        module, inputs, lambda graph, examples: compile_graph(graph, examples, chosen)
    )


def compile_graph(module: torch.fx.GraphModule, examples: Sequence[Any], options: Options) -> Boxed:
    """A boxed callable of one ATen graph: a forward, a backward or an inference graph."""
    counting().graphs += 1
    sizes = Sizes({}, (), ())
    try:
        imported = import_aten(module.graph, module, sizes)
        interface = interface_of(imported, examples, sizes)
        program = None
        if interface.has_program:
            key = key_of(imported.graph, sizes, options)
            program = program_of(key, imported.graph, sizes, options)
    except NotSupported:
        reasons = [row.reason for row in refusals(module.graph, module, sizes)]
        return leave(module, examples, options.fallback, reasons)
    except AotcError as error:
        return leave(module, examples, options.fallback, [error.message])
    return Call(interface, program)
