"""One contender of a comparison, in a process of its own: eager, torch.compile, AOTInductor, aotc.

    python -m aotc.aot.cli.contender build-aoti SPEC FOLDER    compile and package, once
    python -m aotc.aot.cli.contender first KIND SPEC PLACE     process start → first result
    python -m aotc.aot.cli.contender serve KIND SPEC PLACE     sample on request

KIND is aotc, eager, compile or aoti; PLACE is the bundle of aotc or the folder of AOTInductor.
Each prints one JSON object a line. A serving contender answers every line `SECONDS` on its standard
input with the microseconds of each call, and ends at the end of its input: the parent lets the
contenders take turns, so that the spinning threads of one never meet another's.
"""

from __future__ import annotations

import time

STARTED_S = time.perf_counter()

import json  # noqa: E402  # the clock starts before anything is imported
import shutil  # noqa: E402
import sys  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

Call = Callable[[], Any]
WARMUP_CALLS = 5
SAMPLES_LIMIT = 20_000
PACKAGE, INPUTS = "model.pt2", "inputs.pt"


def main(arguments: list[str]) -> None:
    """Run one of the three modes; see the module."""
    mode, *rest = arguments
    if mode == "build-aoti":
        say(build_aoti(*rest))
        return
    kind, spec, place = rest
    missing = needs_compiler(kind)
    if missing:
        say({"skipped": missing})
        return
    began_s = time.perf_counter()
    call = CALLS[kind](spec, Path(place))
    ready_s = time.perf_counter()
    call()
    now_s = time.perf_counter()
    times_s = {"ready_s": ready_s - began_s, "first_call_s": now_s - ready_s}
    say({**times_s, "total_s": now_s - STARTED_S})
    if mode == "serve":
        for _ in range(WARMUP_CALLS):
            call()
        for line in sys.stdin:
            say(sample(call, float(line)))


def say(record: Any) -> None:
    """One line of JSON on standard output."""
    print(json.dumps(record), flush=True)


def sample(call: Call, seconds: float) -> list[float]:
    """Microseconds of each call made during this many seconds."""
    times_us: list[float] = []
    end_s = time.perf_counter() + seconds
    while len(times_us) < SAMPLES_LIMIT:
        began_s = time.perf_counter()
        call()
        now_s = time.perf_counter()
        times_us.append((now_s - began_s) * 1e6)
        if now_s >= end_s:
            break
    return times_us


def needs_compiler(kind: str) -> str:
    """Why this contender cannot run here; empty when it can."""
    if kind == "compile" and not any(map(shutil.which, ("g++", "c++", "clang++"))):
        return "torch.compile needs a C++ compiler, and none is on the PATH"
    return ""


def build_aoti(spec: str, folder: str) -> dict[str, Any]:
    """Export and compile with AOTInductor; seconds, without the import of torch."""
    if not any(map(shutil.which, ("g++", "c++", "clang++"))):
        return {"skipped": "AOTInductor needs a C++ compiler, and none is on the PATH"}
    import torch

    imported_s = time.perf_counter()
    model, arguments, keywords = load_model(spec)
    with torch.no_grad():
        program = torch.export.export(model, arguments, keywords, strict=False)
        path = str(Path(folder) / PACKAGE)
        torch._inductor.aoti_compile_and_package(program, package_path=path)
    torch.save((arguments, keywords), Path(folder) / INPUTS)
    now_s = time.perf_counter()
    return {"build_s": now_s - imported_s, "total_s": now_s - STARTED_S}


def load_model(spec: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The model of a SPEC with its example arguments, as `aotc build` sees it."""
    from aotc.aot.capture.spec import load_spec

    loaded = load_spec(spec)
    model = loaded.module if loaded.module is not None else loaded.program.module()  # type: ignore[union-attr]
    return model, loaded.arguments, dict(loaded.keyword_arguments)


def _aotc(spec: str, place: Path) -> Call:
    """The bundle as the peers are called: torch tensors in, new torch tensors out.

    Without a model to compare with, its golden input as plain buffers: no torch in the process.
    """
    from aotc.runtime import load

    program = load(place)
    if spec:
        from torch.utils import _pytree as pytree

        _, arguments, keywords = load_model(spec)
        tensors = [leaf for leaf in pytree.tree_leaves((arguments, keywords)) if is_tensor(leaf)]
        return _without_gradients(lambda: program(*tensors))
    return _on_buffers(program, place)


def is_tensor(value: Any) -> bool:
    """Whether a leaf of the example arguments is an input of the bundle."""
    import torch

    return isinstance(value, torch.Tensor)


def _on_buffers(program: Any, place: Path) -> Call:
    from aotc.aot.host_array import buffers
    from aotc.runtime.extras import read_golden

    arrays = list(buffers(program.inputs, read_golden(place).inputs).values())
    outputs = program(*arrays)
    return lambda: program(*arrays, out=outputs)


def _eager(spec: str, place: Path) -> Call:
    model, arguments, keywords = load_model(spec)
    return _without_gradients(lambda: model(*arguments, **keywords))


def _compile(spec: str, place: Path) -> Call:
    import torch

    model, arguments, keywords = load_model(spec)
    compiled = torch.compile(model)
    return _without_gradients(lambda: compiled(*arguments, **keywords))


def _aoti(spec: str, place: Path) -> Call:
    import torch

    load_model(spec)  # whose types the package's outputs may be made of
    arguments, keywords = torch.load(place / INPUTS, weights_only=True)
    runner = torch._inductor.aoti_load_package(str(place / PACKAGE))
    return _without_gradients(lambda: runner(*arguments, **keywords))


def _without_gradients(function: Call) -> Call:
    """The function under `torch.no_grad`, entered once for the whole process."""
    import torch

    torch.set_grad_enabled(False)
    return function


CALLS: dict[str, Callable[[str, Path], Call]] = {
    "aotc": _aotc,
    "eager": _eager,
    "compile": _compile,
    "aoti": _aoti,
}


if __name__ == "__main__":
    main(sys.argv[1:])
