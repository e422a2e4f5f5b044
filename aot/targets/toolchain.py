"""The one file that touches libtriton's internals: Triton → TTIR text, LLVM IR text → library.

Triton 3.6 to 3.9 are covered; every difference between them is a `hasattr` or a signature check in
this file. Bad LLVM IR text aborts the whole process ("LLVM ERROR", no exception), so callers run
`compile_object` and `compile_module` inside `aotc.aot.tasks.workers`.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import hashlib
import linecache
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from aotc.aot.errors import CompileError
from aotc.aot.folders import make_owned, owned, remove
from aotc.aot.targets import elf
from aotc.aot.targets.cuda.machines import BACKEND
from aotc.aot.tasks.worker import BODY_FILE
from aotc.runtime.errors import environment_fault

TRIPLE = "x86_64-unknown-linux-gnu"
DATA_LAYOUT = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
# LLVM aborts the process on an unknown name, so names come from here only.
CPUS = ("x86-64-v2", "x86-64-v3", "x86-64-v4", "znver4", "znver5", "sapphirerapids")
KERNEL_ARGUMENTS = ("ptr", "i32", "i32", "i32", "ptr", "ptr")  # KERNEL ABI 1
# What a linked library may take from the process that loads it (libc only).
ALLOWED_UNDEFINED = frozenset({"syscall", "sched_yield", "memcpy", "memset", "memmove"})
_MLIR_TYPES = {"ptr": "!llvm.ptr", "i32": "i32", "i64": "i64", "f32": "f32"}


class ToolchainError(CompileError):
    """A step of the compiler's back end refused its input."""

    code = "toolchain"
    template = "{step} of `{name}` failed: {reason}"
    hint = "`aotc doctor` shows the compilers that were found"


class KernelTextRefused(ToolchainError):
    """Triton does not take the text of a kernel, whatever a program of it may use."""

    code = "kernel-text"
    hint = (
        "a kernel of the model's own must be a program with each of its configs; of one that aotc "
        "wrote this is a bug: please report it"
    )


class CodeGenerationError(ToolchainError):
    """LLVM refused its text; `source` is the file that holds it."""

    code = "code-generation"
    hint = "its LLVM IR is at {source}"


@dataclass(frozen=True, slots=True)
class Export:
    """A public function of an object that forwards to a definition inside its LLVM IR text."""

    name: str
    body: str  # the defined function's name in the text, without `@`
    arguments: tuple[str, ...]  # of "ptr", "i32", "i64", "f32"
    result: str = ""  # empty: void


@dataclass(frozen=True, slots=True)
class Object:
    """One relocatable ELF object with the text it came from."""

    data: bytes
    llvm_ir: str  # after optimisation
    cpu: str

    @property
    def assembly(self) -> str:
        """Made when it is asked for: LLVM's code generation once more, a sixth of a compilation."""
        return assembly_of(self.llvm_ir, self.cpu)


def load_kernel(source: str, function: str) -> Any:
    """Execute a Triton source text and return its `@triton.jit` function.

    The text is registered with `linecache`, where Triton looks for the function's lines: no file
    is written. The same text always gets the same file and module name.

    Raises ToolchainError if the text does not run or does not define the function.
    """
    digest = hashlib.sha256(source.encode()).hexdigest()[:16]
    filename = f"<aotc-{digest}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    module = ModuleType(f"aotc_kernel_{digest}")
    module.__file__ = filename
    try:
        exec(compile(source, filename, "exec"), module.__dict__)
    except Exception as error:
        raise ToolchainError(step="loading", name=function, reason=repr(error)) from error
    if not hasattr(module, function):
        raise ToolchainError(step="loading", name=function, reason="the source does not define it")
    return getattr(module, function)


def ttir_text(
    function: Any, params: Sequence[tuple[str, str]], constants: Mapping[str, Any]
) -> str:
    """Lower a Triton function to TTIR and return MLIR's generic text form; needs no GPU.

    `params` are (name, Triton type such as `*fp32`, `i32`, `constexpr`) in the function's order;
    `constants` gives the value of each constexpr. Dot operands of any size are accepted, and
    libdevice calls become `tt.extern_elementwise` with CUDA's names (`__nv_tanhf`). A dot of f32
    says `inputPrecision = 0` (tf32) by default, which a CPU computes in f32.
    Function and module attributes carry no locations. The entry function's name is lost.

    Raises ToolchainError with Triton's own message.
    """
    from triton._C.libtriton import ir
    from triton.compiler import ASTSource

    signature = dict(params)
    try:
        context = ir.context()
        ir.load_dialects(context)
        target, options, code_generation, modules = _front_end(context)
        source = ASTSource(function, signature, dict(constants))
        module = source.make_ir(target, options, code_generation, modules, context)
        module.context = context
        optimize_ttir(module)
    except Exception as error:
        raise refusal("lowering", function.__name__, error, reason_of(error)) from error
    return generic_form(module, function.__name__)


def refusal(step: str, name: str, error: Exception, reason: str) -> ToolchainError:
    """What a step raises of Triton's error: `KernelTextRefused` where that is of the text."""
    from triton.compiler.errors import CompilationError

    kind = KernelTextRefused if isinstance(error, CompilationError) else ToolchainError
    return kind(step=step, name=name, reason=reason)


def reason_of(error: Exception) -> str:
    """What an error says, at least what it is."""
    return str(_innermost(error)) or repr(error)


def _innermost(error: Exception) -> Exception:
    """What Triton says of the line that it does not take: its errors of the functions that called
    that line's name only the call."""
    from triton.compiler.errors import CompilationError

    while isinstance(error.__cause__, CompilationError):
        error = error.__cause__
    return error


def generic_form(module: Any, function: str, *, is_located: bool = False) -> str:
    """The module as text in MLIR's generic form: one syntax for all operations.

    Located, it also says from which lines of the source the operations come.

    A symbol name that is not a string makes the module invalid, and MLIR prints an invalid module
    in that form. So the module is of no use afterwards.
    """
    from triton._C.libtriton import ir

    entry = module.get_function(function)
    entry.set_attr("sym_name", ir.builder(module.context).get_int32_attr(1))
    return str(module.str() if is_located else module.str_nodebug())


def _front_end(context: Any) -> tuple[Any, Any, dict[str, Any], dict[str, ModuleType]]:
    """CUDA's front end without its limits on dot sizes: (target, options, code, modules)."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import make_backend

    target = GPUTarget(BACKEND, 90, 32)
    backend = make_backend(target)
    backend.load_dialects(context)
    options = backend.parse_options({"enable_fp_fusion": True, "debug": False})
    code_generation = dict(backend.get_codegen_implementation(options))
    code_generation["min_dot_size"] = lambda lhs, rhs: (1, 1, 1)
    return target, options, code_generation, backend.get_module_map()


@functools.cache
def unload_without_driver(module: type) -> None:
    """Have Triton leave loaded kernels of this type to the last reference to them.

    From 3.9 on the end of a kernel asks the driver that is active then to unload it, which may be
    another than the one that loaded it, or none.
    """
    from triton import knobs
    from triton.compiler.compiler import CompiledKernel

    unload = getattr(CompiledKernel, "__del__", None)
    if unload is None:
        return

    def end(kernel: Any) -> None:
        if not isinstance(kernel.module, module):
            unload(kernel)
        elif (hook := knobs.runtime.kernel_unload_hook) is not None:
            hook(kernel.module, kernel.function, kernel.name, kernel.metadata_group, kernel.hash)

    CompiledKernel.__del__ = end


def of_processor(made: Object) -> str:
    """An object's processor and its optimised LLVM IR: what its assembly is made of."""
    return f"; {made.cpu}\n{made.llvm_ir}"


@functools.cache
def make_assembly_when_asked(place: str) -> None:
    """Have Triton's kernels make their `asm["s"]` once somebody asks for it, of the text of
    `of_processor` that they hold at `asm[place]`."""
    from triton.compiler.compiler import AsmDict

    missing: Callable[[Any, str], Any] = AsmDict.__missing__

    def made(texts: Any, key: str) -> Any:
        if key != "s" or place not in texts:
            return missing(texts, key)
        cpu, _, optimized = texts[place].removeprefix("; ").partition("\n")
        texts[key] = assembly_of(optimized, cpu)
        return texts[key]

    AsmDict.__missing__ = made


@functools.cache
def descriptor_flags() -> tuple[str, ...]:
    """What Triton's front end passes between a host tensor descriptor's strides and its sizes.

    Each is an expression of a number in which `{}` stands for the descriptor, in order.
    """
    from triton.tools.tensor_descriptor import TensorDescriptor

    flags = ["{}.padding == 'nan'"]
    if "round_f32_to_tf32" in TensorDescriptor.__dataclass_fields__:  # from 3.7 on
        flags.append("{}.round_f32_to_tf32")
    return tuple(flags)


def _inline_all(module: Any) -> None:
    """Let Triton's inliner take functions that are marked `noinline` too: one function is left."""
    from triton._C.libtriton import ir

    names: list[str] = []

    def visit(operation: Any) -> None:
        if operation.get_name() == "tt.func":
            names.append(operation.get_str_attr("sym_name"))

    module.walk(visit)
    builder = ir.builder(module.context)
    for name in names:
        module.get_function(name).set_attr("noinline", builder.get_bool_attr(False))


def optimize_ttir(module: Any) -> Any:
    """Run Triton's own passes on TTIR, in place; gives the module."""
    from triton._C.libtriton import ir, passes

    _inline_all(module)
    manager = ir.pass_manager(module.context)
    common, ttir = passes.common, passes.ttir
    common.add_inliner(manager)
    for name in ("add_rewrite_tensor_pointer", "add_rewrite_tensor_descriptor_to_pointer"):
        if hasattr(ttir, name):  # the first is gone from 3.8
            getattr(ttir, name)(manager)
    common.add_canonicalizer(manager)
    ttir.add_combine(manager)
    ttir.add_reorder_broadcast(manager)
    common.add_cse(manager)
    common.add_licm(manager)
    ttir.add_loop_unroll(manager)
    common.add_canonicalizer(manager)
    common.add_cse(manager)
    common.add_symbol_dce(manager)
    manager.run(module, "aotc_ttir")
    return module


@functools.cache
def _llvm() -> Any:
    """libtriton's LLVM bindings with the x86 back end registered (3.9 no longer does it itself)."""
    from triton._C import libtriton

    libtriton.llvm.init_targets()
    library = ctypes.CDLL(libtriton.__file__)
    for part in ("TargetInfo", "Target", "TargetMC", "AsmPrinter", "AsmParser"):
        # 3.6 hides these symbols and has already registered the target.
        register: Callable[[], None] | None = getattr(library, f"LLVMInitializeX86{part}", None)
        if register is not None:
            register()
    return libtriton.llvm


def compile_object(llvm_ir: str, symbol: str, cpu: str) -> Object:
    """Compile LLVM IR text that defines `@body` (KERNEL ABI 1) to an object exporting `symbol`.

    Raises CodeGenerationError where LLVM reports an error; where LLVM aborts, the process ends.
    """
    return compile_module(llvm_ir, [Export(symbol, "body", KERNEL_ARGUMENTS)], cpu)


def compile_module(llvm_ir: str, exports: Sequence[Export], cpu: str) -> Object:
    """Compile LLVM IR text to one object whose public functions are `exports`.

    Everything that the text defines becomes internal; each export is a small function that jumps
    to its body, so bodies must be `noinline` if they carry function attributes of their own.
    Target triple and data layout are added to the text if it has none.

    Raises CodeGenerationError where LLVM reports an error; where LLVM aborts, the process ends.
    """
    if cpu not in CPUS:
        known = ", ".join(CPUS)
        reason = f"CPU `{cpu}` is unknown, expected one of {known}"
        raise ToolchainError(step="compiling", name=exports[0].name, reason=reason)
    llvm, name = _llvm(), exports[0].name
    # The folder goes only after success: else it holds the kernel's text while this process lives.
    path, lock = make_owned("compile")
    folder = Path(path)
    wrapper, body = folder / "wrapper.mlir", folder / BODY_FILE
    wrapper.write_text(_wrapper_text(exports))
    body.write_text(_with_target(llvm_ir))
    try:
        optimized = _optimize(llvm, body, wrapper, cpu)
        data = _translate(llvm, optimized, cpu, as_object=True)
    except (RuntimeError, ValueError) as error:
        reason = _parser_message(body) or str(error)
        raise CodeGenerationError(
            step="compiling", name=name, reason=reason, source=str(body)
        ) from error
    remove(path)
    os.close(lock)
    return Object(data, optimized, cpu)


def _parser_message(body: Path) -> str:
    """What LLVM's parser says of a text; it says so only while it ends its process."""
    code = "import sys; sys.path[:] = sys.argv[3:]; from aotc.aot.targets import toolchain as t; "
    code += "t._translate(t._llvm(), open(sys.argv[1]).read(), sys.argv[2], as_object=False)"
    command = [sys.executable, "-c", code, str(body), CPUS[0], *sys.path]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in result.stderr.splitlines() if "LLVM ERROR" in line]
    return lines[0] if lines else ""


def _with_target(llvm_ir: str) -> str:
    header = ""
    if "target datalayout" not in llvm_ir:
        header += f'target datalayout = "{DATA_LAYOUT}"\n'
    if "target triple" not in llvm_ir:
        header += f'target triple = "{TRIPLE}"\n'
    return header + llvm_ir


def _wrapper_text(exports: Sequence[Export]) -> str:
    """MLIR text of the exported functions: the only way in, libtriton parses no LLVM IR alone."""
    lines = [f'module attributes {{llvm.target_triple = "{TRIPLE}"}} {{']
    for export in exports:
        types = [_MLIR_TYPES[name] for name in export.arguments]
        result = _MLIR_TYPES[export.result] if export.result else ""
        arrow = f" -> {result}" if result else ""
        parameters = ", ".join(f"%a{i}: {name}" for i, name in enumerate(types))
        operands = ", ".join(f"%a{i}" for i in range(len(types)))
        call = f'llvm.call @"{export.body}"({operands}) : ({", ".join(types)}) -> {result or "()"}'
        lines += [
            f'  llvm.func @"{export.body}"({", ".join(types)}){arrow}',
            f'  llvm.func @"{export.name}"({parameters}){arrow} {{',
            f"    {'%r = ' if result else ''}{call}",
            f"    llvm.return {'%r : ' + result if result else ''}",
            "  }",
        ]
    return "\n".join([*lines, "}", ""])


def _optimize(llvm: Any, body: Path, wrapper: Path, cpu: str) -> str:
    """Link the text into the wrapper module, run O3 for this CPU, return the LLVM IR text."""
    from triton._C.libtriton import ir

    context = ir.context()
    ir.load_dialects(context)
    module = ir.parse_mlir_module(str(wrapper), context)
    module.context = context
    llvm_context = llvm.context()
    linked = llvm.to_module(module, llvm_context)
    llvm.attach_datalayout(linked, TRIPLE, cpu, "")
    llvm.link_extern_libs(linked, [str(body)])
    llvm.optimize_module(linked, llvm.OPTIMIZE_O3, cpu, "", [], False)
    return str(linked)


def assembly_of(optimized_ir: str, cpu: str) -> str:
    """The assembly of an object's optimised LLVM IR, which has become machine code already."""
    return str(_translate(_llvm(), optimized_ir, cpu, as_object=False))


def _translate(llvm: Any, llvm_ir: str, cpu: str, *, as_object: bool) -> Any:
    """LLVM IR → object bytes or assembly text."""
    # No fused multiply-add but those in the text: one value has one rounding everywhere.
    arguments: list[Any] = [llvm_ir, TRIPLE, cpu, "", [], False, as_object]
    described = llvm.translate_to_asm.__doc__ or ""
    if "arg7" in described or "canonicalize_gep" in described:  # one more flag from 3.8 on
        arguments.append(False)
    return llvm.translate_to_asm(*arguments)


def link(objects: Mapping[str, bytes]) -> bytes:
    """Link relocatable objects to one shared library; equal objects give equal bytes.

    `objects` maps a name for messages (a plain word) to ELF bytes; the order is by name.

    Raises ToolchainError on undefined symbols that a process with libc does not give.
    """
    from triton._C.libtriton import amd

    with owned("link") as folder:
        paths = []
        for number, name in enumerate(sorted(objects)):
            path = Path(folder, f"{number}.o")
            path.write_bytes(objects[name])
            paths.append(path)
        script, library = Path(folder, "inputs.ld"), Path(folder, "library.so")
        quoted = " ".join(f'"{path}"' for path in paths)  # TMPDIR may have spaces
        script.write_text(f"INPUT({quoted})\n")
        try:
            amd.link_hsaco(str(script), str(library))
        except RuntimeError as error:
            for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.EROFS):
                if os.strerror(number) in str(error):
                    fault = OSError(number, os.strerror(number))
                    raise environment_fault("write", str(library), fault) from error
            raise ToolchainError(step="linking", name="library", reason=str(error)) from error
        data = library.read_bytes()
    undefined = sorted(elf.undefined_symbols(data) - ALLOWED_UNDEFINED)
    if undefined:
        reason = f"undefined symbols: {', '.join(undefined)}"
        raise ToolchainError(step="linking", name="library", reason=reason)
    return data
