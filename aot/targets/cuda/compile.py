"""Compilation of one Triton kernel for a GPU: source text → cubin and what a launch needs.

Triton's own CUDA pipeline, stage by stage: the CUDA half of what touches Triton's internals.
Triton 3.6 to 3.9 are covered. Nothing is written but temporary files: the stages are called one by
one, without Triton's compiler, whose cache is in the user's home. Line information is off, so that
a cubin depends on its source and not on folders. Callers run this in a worker process, whose
environment has none of Triton's own variables (see `aot/tasks/workers.py`).
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from aotc.aot.errors import KernelTooLarge
from aotc.aot.targets import toolchain
from aotc.aot.targets.binary import KernelBinary, kernel_symbol, pack_texts
from aotc.aot.targets.cuda.arithmetic import flushes, separated
from aotc.aot.targets.cuda.machines import GPUS, PROGRAMMATIC_LAUNCH_CAPABILITY, capability
from aotc.aot.targets.cuda.ptx import repaired
from aotc.aot.targets.toolchain import ToolchainError
from aotc.aot.traits import LAUNCH_OPTIONS

POINTER_ALIGNMENT_BYTES = 16  # tt.divisibility of every pointer
TRAILING_PARAMS = 2  # Triton's own: global scratch and profile scratch
TEXTS = {"ttir": "ttir", "ttgir": "ttgir", "llir": "ll", "ptx": "ptx"}  # stage → file suffix
TENSOR_MEMORY_COLUMNS = 512  # of one multiprocessor, from sm_100 on


def compile_kernel(
    source: str,
    function: str,
    params: Sequence[tuple[str, str]],
    config: Sequence[tuple[str, int]],
    architecture: str,
) -> KernelBinary:
    """Compile `function` of a Triton source text for `architecture`, such as `sm_90`.

    `params` are (name, Triton type) of the run-time arguments in order, scratch included; every
    pointer is taken to be 16-byte aligned. `config` holds the constexprs and the launch options.

    Raises ToolchainError with Triton's or the assembler's reason, KernelTooLarge where a program
    needs more shared or tensor memory than a multiprocessor has.
    """
    constants, options = _parted(config)
    return compile_cubin(
        toolchain.load_kernel(source, function),
        params,
        constants,
        capability(architecture),
        options,
        kernel_symbol(source, function, params, config, architecture),
    )


def check_text(
    source: str,
    function: str,
    params: Sequence[tuple[str, str]],
    config: Sequence[tuple[str, int]],
    architecture: str,
) -> None:
    """Have Triton read a kernel and do no more; else as `compile_kernel`."""
    constants, options = _parted(config)
    try:
        with _quiet_knobs():
            kernel = toolchain.load_kernel(source, function)
            _front_end(kernel, params, constants, capability(architecture), options)
    except Exception as error:
        raise toolchain.refusal("compiling", function, error, _reason(error)) from error


def _parted(config: Sequence[tuple[str, int]]) -> tuple[dict[str, int], dict[str, int]]:
    """The constexprs, and the launch options."""
    constants = {name: value for name, value in config if name not in LAUNCH_OPTIONS}
    return constants, {name: value for name, value in config if name in LAUNCH_OPTIONS}


def compile_cubin(
    function: Any,
    params: Sequence[tuple[str, str]],
    constants: Mapping[str, Any],
    capability: int,
    options: Mapping[str, int],
    symbol: str,
) -> KernelBinary:
    """Compile a `@triton.jit` or `@gluon.jit` function; needs no GPU.

    `params` are (name, Triton type) of the run-time arguments; `constants` the constexprs;
    `options` num_warps, num_stages, maxnreg and enable_fp_fusion where they are not the defaults,
    which let a product join the sum that reads it, and is_followed_early (see `ptx.waiting`). f32
    dots that do not name a precision are computed in f32. The entry is called `symbol`.

    Raises ToolchainError with Triton's or ptxas's message, and KernelTooLarge.
    """
    log = io.StringIO()
    metadata: dict[str, Any] = {}
    made: dict[str, Any] = {}
    try:
        with _quiet_knobs(), contextlib.redirect_stdout(log):
            module, stages, defaults = _front_end(function, params, constants, capability, options)
            metadata |= defaults
            for name, stage in stages.items():
                module = stage(module, metadata)
                if name == "llir":
                    module = separated(module)
                if name == "ptx":
                    module = re.sub(rf"\b{re.escape(metadata['name'])}\b", symbol, module)
                    module = repaired(module, capability, bool(options.get("is_followed_early")))
                made[name] = module if isinstance(module, bytes) else str(module)
    except Exception as error:
        reason = _reason(error)
        raise toolchain.refusal("compiling", function.__name__, error, reason) from error
    found, expected = _entry_params(made["ptx"]), sum(map(_launch_params, dict(params).values()))
    if found != expected + TRAILING_PARAMS:
        reason = f"its entry takes {found} parameters, not {expected} + {TRAILING_PARAMS}"
        raise ToolchainError(step="compiling", name=function.__name__, reason=reason)
    needs = (
        (metadata["shared"], "bytes of shared memory", GPUS[capability].shared_bytes),
        (metadata.get("tmem_size") or 0, "columns of tensor memory", TENSOR_MEMORY_COLUMNS),
    )
    for needed, unit, limit in needs:
        if needed > limit:
            raise KernelTooLarge(kernel=function.__name__, found=needed, unit=unit, expected=limit)
    return KernelBinary(
        symbol=symbol,
        code=made["cubin"],
        scratch_bytes=metadata.get("global_scratch_size") or 0,
        threads=_threads(made["ptx"]) or 32 * metadata["num_warps"],
        shared_bytes=metadata["shared"],
        registers=sum(map(int, re.findall(r"Used (\d+) registers", log.getvalue()))),
        spill_bytes=sum(map(int, re.findall(r"(\d+) bytes spill", log.getvalue()))),
        is_programmatic=capability >= PROGRAMMATIC_LAUNCH_CAPABILITY,
        packed_texts=pack_texts(
            {suffix: made[stage] for stage, suffix in TEXTS.items() if stage in made}
        ),
    )


def _front_end(
    function: Any,
    params: Sequence[tuple[str, str]],
    constants: Mapping[str, Any],
    capability: int,
    options: Mapping[str, int],
) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """(module of the first stage, stages by name, the metadata that they start from)."""
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, make_backend

    target = GPUTarget("cuda", capability, 32)
    backend = make_backend(target)
    parsed = backend.parse_options(
        {
            "default_dot_input_precision": "ieee",
            **{name: value for name, value in options.items() if name != "is_followed_early"},
            "enable_fp_fusion": bool(options.get("enable_fp_fusion", True)),
        }
    )
    types = {**dict(params), **dict.fromkeys(constants, "constexpr")}
    order = [name for name in function.arg_names if name in types]
    aligned = [["tt.divisibility", POINTER_ALIGNMENT_BYTES]]
    source = _source_class(function, ASTSource)(
        function,
        {name: types[name] for name in order},
        dict(constants),
        {(place,): aligned for place, name in enumerate(order) if types[name].startswith("*")},
    )
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    code_generation = backend.get_codegen_implementation(parsed)
    module = source.make_ir(target, parsed, code_generation, backend.get_module_map(), context)
    parsed = replace(parsed, enable_reflect_ftz=flushes(str(module)))
    stages: dict[str, Any] = {}
    backend.add_stages(stages, parsed, source.language)
    return module, stages, dict(parsed.__dict__)


def _source_class(function: Any, plain: type) -> type:
    """What makes the first module of a function: Gluon has a class of its own."""
    if not function.is_gluon():
        return plain
    from triton.experimental.gluon._runtime import GluonASTSource

    found: type = GluonASTSource
    return found


@contextlib.contextmanager
def _quiet_knobs() -> Iterator[None]:
    """Line information off; the assembler's report, with registers and spills, on stdout."""
    from triton import knobs

    with knobs.compilation.scope(), knobs.nvidia.scope():
        knobs.compilation.disable_line_info = True
        knobs.nvidia.dump_ptxas_log = True
        yield


def _threads(ptx: str) -> int:
    """Threads of one program as the entry requires them; 0 where it says nothing."""
    match = re.search(r"^\.reqntid (\d+)(?:, *(\d+))?(?:, *(\d+))?", ptx, re.MULTILINE)
    if match is None:
        return 0
    extents = [int(extent) for extent in match.groups(default="1")]
    return extents[0] * extents[1] * extents[2]


def _launch_params(kind: str) -> int:
    """Parameters of the entry for one of the kernel: a tensor descriptor is a map, its shape and
    its strides."""
    block = re.fullmatch(r"tensordesc<\w+\[([\d, ]+)\].*>", kind)
    return 1 + 2 * len(block[1].split(",")) if block else 1


def _entry_params(ptx: str) -> int:
    _, _, rest = ptx.partition(".visible .entry ")
    return rest.partition(")")[0].count(".param ")


def _reason(error: Exception) -> str:
    """What the assembler says, else Triton's own message."""
    text = toolchain.reason_of(error)
    lines = [line for line in text.splitlines() if re.match(r"ptxas\S* +(error|fatal)", line)]
    return "; ".join(lines[:4]) if lines else text


def load() -> None:
    """Import what a compilation takes; some seconds on a cold machine."""
    import triton.compiler
    import triton.language  # noqa: F401
