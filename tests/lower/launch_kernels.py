"""Runs the launches of job folders: `launch_kernels.py interpreter|native THREADS`.

Each line of the input is the path of a folder as JSON, answered by the line `done`.
`job.json` holds {"buffers": {name: dtype}, "launches": [{"source", "function", "grid", "config",
"args": [buffer name or number], "starts": [first element], "maps": [map]}]}, `buffers.npz` the
arrays (bf16 as uint16). All buffers are written back to `results.npz`; launches that fail are
listed in `errors.json` by their number.
Triton decides at the decoration of a kernel whether to interpret it, by TRITON_INTERPRET=1: hence a
process of its own. THREADS (0: as usual) run native programs: as many as wait for each other.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import re
import sys
from pathlib import Path

import numpy
import torch
import triton.language as tl
from gluon_as_triton import as_triton
from triton.language import core
from triton.language.extra import libdevice
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle
from triton.tools.tensor_descriptor import TensorDescriptor

from aotc import kernels
from aotc.runtime.drivers.cpu import launch as native_launch

_FUNCTIONS = {
    "tanh": numpy.tanh,
    "expm1": numpy.expm1,
    "log1p": numpy.log1p,
    "rint": numpy.rint,
    "trunc": numpy.trunc,
    "pow": numpy.power,
    "fast_dividef": numpy.divide,
    "atan2": numpy.arctan2,
    "fmod": numpy.fmod,
}


def _without_waiting(source: str) -> str:
    """A kernel's text without what only a GPU does: to wait, to ask for lines of a cache, and to
    hold a tile where it is."""
    held = r"    return tl\.inline_asm_elementwise\([^\[]*\[(\w+)\].*?\n    \)\n"
    source = re.sub(held, r"    return \1\n", source, flags=re.S)
    return re.sub(
        r"    tl\.inline_asm_elementwise\(.*?\n    \)\n", "    pass\n", source, flags=re.S
    )


def _interpreted(function):
    def call(*operands):
        tensors = [operand for operand in operands if not isinstance(operand, float)]
        first = max(tensors, key=lambda operand: operand.handle.data.size)
        kind = first.handle.data.dtype
        arrays = numpy.broadcast_arrays(
            *(
                kind.type(operand) if isinstance(operand, float) else operand.handle.data
                for operand in operands
            )
        )
        handle = TensorHandle(function(*arrays), first.handle.dtype)
        return core.tensor(handle, first.type)

    return call


def _wide(handle: TensorHandle) -> TensorHandle:
    if handle.dtype.scalar != tl.bfloat16:
        return handle
    bits = handle.data.astype(numpy.uint32) << 16
    return TensorHandle(bits.view(numpy.float32), tl.float32)


_create_dot = InterpreterBuilder.create_dot


def _dot(builder, a, b, *rest):
    """Triton's interpreter multiplies the bits of bf16 as integers."""
    return _create_dot(builder, _wide(a), _wide(b), *rest)


def _tensor(array: numpy.ndarray, dtype: str) -> torch.Tensor:
    if dtype == "bf16":
        return torch.from_numpy(array.view(numpy.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def _array(tensor: torch.Tensor) -> numpy.ndarray:
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(numpy.uint16)
    return tensor.numpy()


def _described(arguments: list[torch.Tensor], row: dict) -> TensorDescriptor:
    """The tensor descriptor that a launch makes of one of its arguments."""
    base = arguments[row["param"]].reshape(-1)[row["start"] :]
    return TensorDescriptor(base, *(row[name] for name in ("shape", "strides", "block")))


def main(mode: str, threads: int) -> None:
    gc.set_threshold(20_000, 10, 10)  # torch and Triton stay, and are not walked again and again
    if threads:
        native_launch.default_threads = lambda: threads
    if mode == "native":
        with kernels.on_cpu():
            answer_all()
        return
    for name, function in _FUNCTIONS.items():
        setattr(libdevice, name, _interpreted(function))
    InterpreterBuilder.create_dot = _dot
    answer_all()


def answer_all() -> None:
    """Answers go where the output went at first; what a kernel prints joins the errors."""
    with os.fdopen(os.dup(1), "w", buffering=1) as answers:
        os.dup2(2, 1)
        for line in sys.stdin:
            launch_all(Path(json.loads(line)))
            answers.write("done\n")


def launch_all(folder: Path, **options: str | bool) -> None:
    """Run the job's launches in order and write back what its buffers then hold.

    options: of every launch; `debug="memory"` holds each address against its buffer.
    """
    job = json.loads((folder / "job.json").read_text())
    stored = numpy.load(folder / "buffers.npz")
    buffers = {name: _tensor(stored[name], dtype) for name, dtype in job["buffers"].items()}
    errors = {}
    for number, launch in enumerate(job["launches"]):
        path = folder / f"kernel{number}.py"
        path.write_text(as_triton(_without_waiting(launch["source"])))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        arguments = [buffers.get(name, name) for name in launch["args"]]  # sizes are numbers
        for place, start in enumerate(launch.get("starts", ())):
            if start:
                arguments[place] = arguments[place].reshape(-1)[start:]
        arguments += [_described(arguments, row) for row in launch.get("maps", ())]
        kernel = getattr(module, launch["function"])
        for param in getattr(kernel, "params", ()):  # a size of 1 stays a number of the launch
            param.do_not_specialize = param.name.startswith("size_")
        try:
            kernel[tuple(launch["grid"])](*arguments, **launch["config"], **options)
        except Exception as error:
            errors[number] = f"{error!r} in\n{launch['source']}"
    (folder / "errors.json").write_text(json.dumps(errors))
    numpy.savez(folder / "results.npz", **{name: _array(item) for name, item in buffers.items()})


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
