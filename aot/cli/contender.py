"""One contender of a comparison, in a process of its own: torch in several modes, or aotc.

    python -m aotc.aot.cli.contender build-aoti SPEC FOLDER DEVICE ENTRY SIZES   compile, once
    python -m aotc.aot.cli.contender first KIND SPEC PLACE DEVICE    process start → first result
    python -m aotc.aot.cli.contender serve KIND SPEC PLACE DEVICE    sample on request

KIND is a row of CALLS; PLACE is the bundle of aotc or the folder of AOTInductor; DEVICE is `cpu` or
`cuda`. The digest that a bundle must have, the name of an entry point and the sizes of a call as
JSON (a `CallSizes`, else the example's) may follow, each of them empty, and then files and modules
to import before it is loaded. Each prints one JSON object a line. A serving contender answers every
line `SECONDS` on its standard input with the times of `sampling.py`, and ends at the end of its
input: the parent lets the contenders take turns, so that the spinning threads of one never meet
another's, and the device has one to serve.
"""

from __future__ import annotations

import time

STARTED_S = time.perf_counter()

import ctypes  # noqa: E402
import json  # noqa: E402  # the clock starts before anything is imported
import shutil  # noqa: E402
import signal  # noqa: E402
import sys  # noqa: E402
from collections.abc import Callable, Sequence  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from functools import cache  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from aotc.aot.cli.sampling import Call, sample_device, sample_host  # noqa: E402
from aotc.runtime.errors import AotcError  # noqa: E402


@dataclass(frozen=True, slots=True)
class Subject:
    """What a contender runs: see the module. digest, entry: None where they were not named."""

    spec: str
    place: Path
    device: str
    digest: str | None = None
    entry: str | None = None
    sizes: str = ""
    imports: tuple[str, ...] = ()


WARMUP_CALLS = 5
PR_SET_PDEATHSIG = 1
PACKAGE, INPUTS = "model.pt2", "inputs.pt"
NO_COMPILER = "{} needs a C++ compiler, and none is on the PATH"


def main(arguments: list[str]) -> None:
    """Run one of the three modes; see the module."""
    end_with_parent()
    try:
        _main(*arguments)
    except AotcError as error:
        say({"skipped": str(error), "error": error.as_map()})


def end_with_parent() -> None:
    """Have the system end this process when the one that started it has ended, however that was."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _main(mode: str, *rest: str) -> None:
    if mode == "build-aoti":
        say(build_aoti(*rest))
        return
    kind, spec, place, device, *more = rest
    missing = why_skipped(kind, device)
    if missing:
        say({"skipped": missing})
        return
    digest, entry, sizes = [*more, "", "", ""][:3]
    subject = Subject(
        spec, Path(place), device, digest or None, entry or None, sizes, tuple(more[3:])
    )
    if spec and CALLS[kind] in (_aotc, _bound):
        _tensors(
            subject
        )  # the time of importing torch and the model, for their inputs, is not ours
    if subject.imports:  # torch, in most cases, which the bundle alone would not import
        _import_each(subject.imports)
    began_s = time.perf_counter()
    call = CALLS[kind](subject)
    ready_s = time.perf_counter()
    call()
    synchronize(device)
    now_s = time.perf_counter()
    times_s = {"ready_s": ready_s - began_s, "first_call_s": now_s - ready_s}
    if mode == "first":
        say({**times_s, "total_s": now_s - STARTED_S})
        return
    for _ in range(WARMUP_CALLS):
        call()
    synchronize(device)
    warm_s = time.perf_counter() - ready_s
    say({**times_s, "total_s": now_s - STARTED_S, "warm_s": warm_s})
    sample = sample_device if device == "cuda" and "torch" in sys.modules else sample_host
    for line in sys.stdin:
        say(sample(call, float(line)))


def say(record: Any) -> None:
    """One line of JSON on standard output."""
    print(json.dumps(record), flush=True)


def synchronize(device: str) -> None:
    """Wait for a device; without torch a call has waited by itself."""
    if device == "cuda" and "torch" in sys.modules:
        sys.modules["torch"].cuda.synchronize()


def why_skipped(kind: str, device: str) -> str:
    """Why this contender cannot run here; empty when it can."""
    if device == "cpu" and kind in ("graph", "max-autotune"):
        return "CUDA graphs need a CUDA device"
    is_compiled = kind in ("compile", "max-autotune")
    if is_compiled and not any(map(shutil.which, ("gcc", "g++", "c++", "clang++"))):
        return NO_COMPILER.format("torch.compile")
    return ""


def build_aoti(
    spec: str, folder: str, device: str, entry: str = "", sizes: str = ""
) -> dict[str, Any]:
    """Export and compile with AOTInductor; seconds, without the import of torch."""
    if not any(map(shutil.which, ("g++", "c++", "clang++"))):
        return {"skipped": NO_COMPILER.format("AOTInductor")}
    import torch

    imported_s = time.perf_counter()
    model, arguments, keywords = load_model(spec, device, entry or None, sizes)
    with torch.no_grad():
        program = torch.export.export(model, arguments, keywords, strict=False)
        path = str(Path(folder) / PACKAGE)
        torch._inductor.aoti_compile_and_package(program, package_path=path)
    torch.save((arguments, keywords), Path(folder) / INPUTS)
    now_s = time.perf_counter()
    return {"build_s": now_s - imported_s, "total_s": now_s - STARTED_S}


def load_model(
    spec: str, device: str, entry: str | None = None, sizes: str = ""
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The model of a SPEC, at an entry point, on a device with its example arguments, as
    `aotc build` sees it; its tensors have the shapes of `sizes` (JSON), where these are given."""
    from aotc import kernels
    from aotc.aot.capture.spec import has_host_kernels, load_spec

    loaded = load_spec(spec, entry)
    model = loaded.module if loaded.module is not None else loaded.program.module()  # type: ignore[union-attr]
    arguments, keywords = loaded.arguments, dict(loaded.keyword_arguments)
    if sizes:
        arguments, keywords = _at_shapes((arguments, keywords), json.loads(sizes)["shapes"])
    if device == "cpu":
        if has_host_kernels(loaded):
            kernels.use_cpu()  # the peers launch the model's own Triton kernels too
        return model, arguments, keywords
    from torch.utils import _pytree as pytree

    model = model.to(device)
    arguments, keywords = pytree.tree_map_only(
        is_tensor_type(), lambda tensor: tensor.to(device), (arguments, keywords)
    )
    return model, arguments, keywords


def _at_shapes(tree: Any, shapes: Sequence[Sequence[int]]) -> Any:
    """The tensors of a tree cut, or repeated from their start, along each dim to these shapes;
    zeros where there is nothing to repeat."""
    import torch
    from torch.utils import _pytree as pytree

    following = iter(shapes)

    def resized(tensor: Any) -> Any:
        for axis, extent in enumerate(next(following)):
            found = tensor.shape[axis]
            if not found:
                tensor = tensor.new_zeros((*tensor.shape[:axis], extent, *tensor.shape[axis + 1 :]))
            elif found != extent:
                tensor = tensor.index_select(axis, torch.arange(extent) % found)
        return tensor

    return pytree.tree_map_only(is_tensor_type(), resized, tree)


def is_tensor_type() -> Any:
    """The class of the leaves that are inputs of the bundle."""
    import torch

    return torch.Tensor


def _model(subject: Subject, device: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    return load_model(subject.spec, device, subject.entry, subject.sizes)


def _aotc(subject: Subject) -> Call:
    """The bundle as the peers are called: torch tensors in, new torch tensors out.

    Without a model to compare with, its golden input as plain buffers: no torch in the process.
    """
    from aotc.runtime import load

    if subject.spec:
        tensors = _tensors(subject)  # first: its file may register ops that the bundle needs
        program = load(subject.place, subject.device, subject.digest)
        entry = program.entry(subject.entry)
        return _without_gradients(lambda: entry(*tensors))
    return _on_buffers(load(subject.place, subject.device, subject.digest), subject)


def _bound(subject: Subject) -> Call:
    """The bundle with the memory of inputs and outputs fixed, as a server would hold it."""
    from aotc.runtime import load

    tensors = _tensors(subject)
    entry = load(subject.place, subject.device, subject.digest).entry(subject.entry)
    outputs: Any = entry(*tensors)
    return _without_gradients(entry.bind(*tensors, out=outputs))


def _import_each(texts: Sequence[str]) -> None:
    from aotc.aot.capture.user_code import import_code

    for text in texts:
        import_code(text)


@cache
def _tensors(subject: Subject) -> list[Any]:
    from torch.utils import _pytree as pytree

    _, arguments, keywords = _model(subject, "cpu")
    leaves, tensor = pytree.tree_leaves((arguments, keywords)), is_tensor_type()
    return [leaf.to(subject.device) for leaf in leaves if isinstance(leaf, tensor)]


def _on_buffers(program: Any, subject: Subject) -> Call:
    from aotc.aot.call_sizes import resized_each
    from aotc.aot.host_array import as_laid, host_arrays
    from aotc.runtime.extras import read_golden

    entry = program.entry(subject.entry)
    golden = read_golden(subject.place, program.digest, entry.name)
    arrays = host_arrays(entry.inputs, golden.inputs)
    if subject.sizes:
        sizes = json.loads(subject.sizes)
        arrays = resized_each(arrays, sizes["shapes"])
        if sizes["session"]:
            entry = program.session(**sizes["session"])[entry.name]
    given = [array.buffer() for array in arrays.values()]
    outputs = entry(*given)
    if isinstance(outputs, memoryview | tuple):  # else nested, and written once more after a call
        laid = tuple(map(as_laid, entry.outputs, entry.flatten(outputs)))
        outputs = laid if isinstance(outputs, tuple) else laid[0]
    laid_inputs = list(map(as_laid, entry.inputs, given))
    return lambda: entry(*laid_inputs, out=outputs)


def _eager(subject: Subject) -> Call:
    model, arguments, keywords = _model(subject, subject.device)
    return _without_gradients(lambda: model(*arguments, **keywords))


def _graph(subject: Subject) -> Call:
    """Eager kernels captured into one CUDA graph."""
    import torch

    call = _eager(subject)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    replay: Call = graph.replay
    return replay


def _compile(subject: Subject) -> Call:
    return _compiled(subject, "default")


def _max_autotune(subject: Subject) -> Call:
    """With CUDA graphs, as this mode has them."""
    return _compiled(subject, "max-autotune")


def _compiled(subject: Subject, mode: str) -> Call:
    import torch

    model, arguments, keywords = _model(subject, subject.device)
    compiled = torch.compile(model, mode=mode)
    return _without_gradients(lambda: compiled(*arguments, **keywords))


def _aoti(subject: Subject) -> Call:
    import torch

    _model(subject, "cpu")  # whose types the package's outputs may be made of
    arguments, keywords = torch.load(subject.place / INPUTS, weights_only=True)
    runner = torch._inductor.aoti_load_package(str(subject.place / PACKAGE))
    return _without_gradients(lambda: runner(*arguments, **keywords))


def _without_gradients(function: Call) -> Call:
    """The function under `torch.no_grad`, entered once for the whole process."""
    import torch

    torch.set_grad_enabled(False)
    return function


CALLS: dict[str, Callable[[Subject], Call]] = {
    "aotc": _aotc,
    "bound": _bound,
    "eager": _eager,
    "graph": _graph,
    "compile": _compile,
    "max-autotune": _max_autotune,
    "aoti": _aoti,
}


if __name__ == "__main__":
    main(sys.argv[1:])
