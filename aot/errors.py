"""The compiler's errors: one class each, with typed fields and one message template.

They extend the runtime's `AotcError`, so that one printer and one table of exit codes serve both
halves. A raise site names fields only: `raise SpecNotFound(path="model.py")`. Form: lower case, no
final period, found before expected, then `hint:` with the next step.
"""

from __future__ import annotations

import difflib
from typing import Any

from aotc.runtime.errors import AotcError


class TypeRuleError(TypeError):
    """A node that no type rule allows; carries the bare reason, without the op's name. The stages
    catch it."""


class UndecidedSize(TypeRuleError):
    """A rule asked for a dynamic size."""


class UserError(AotcError):
    """The command line, the settings or a file of the user is wrong; exit 2."""

    code = "usage"
    exit_code = 2
    template = "{message}"


class SpecError(UserError):
    """The model's specification (`SPEC`) cannot be used; exit 2."""

    code = "spec"
    exit_code = 2


class EntryStatesDiffer(SpecError):
    """Two entry points have a state of one name that is not one thing."""

    template = "state `{name}` is {found}, expected {expected}"
    hint = "entry points share states by name: give each the same buffer"


class UnsupportedError(AotcError):
    """The model holds something that aotc cannot compile; exit 3."""

    code = "unsupported"
    exit_code = 3
    template = "{message}"


class CompileError(AotcError):
    """A kernel did not compile or link; exit 4."""

    code = "compile"
    exit_code = 4
    template = "{message}"


class KernelCallInvalid(AotcError):
    """A function of `aotc.kernels` was called with an argument that it does not take; exit 2."""

    exit_code = 2
    template = "`{function}`: `{argument}` is {found}, expected {expected}"
    hint = "{advice}`help(aotc.kernels.{function})` describes every argument"

    def __init__(self, advice: str = "", **fields: Any) -> None:
        """advice: how this one is put right, where that can be said; ends with `; `."""
        super().__init__(advice=advice, **fields)


class KernelAsserted(AotcError, RuntimeError):
    """A `tl.device_assert`, or a check that `debug=True` adds, does not hold; exit 3."""

    code = "kernel-assertion"
    exit_code = 3
    template = (
        "assertion `{text}` of kernel `{kernel}` failed at {line}: program {program},"
        " element {element}; {count} of the launch's programs"
    )
    hint = "the kernel's results are not to be used; other launches are not affected"


class OutOfBounds(AotcError, RuntimeError):
    """A kernel under `debug="memory"` leaves a tensor; the access is not made; exit 3."""

    code = "kernel-out-of-bounds"
    exit_code = 3
    template = (
        "kernel `{kernel}` {access} {nbytes} bytes at {where}: at {line}, program {program};"
        " {count} such chunks of accesses"
    )
    hint = "give the access a `mask`, or the kernel the size of the tensor"


class DataRace(AotcError, RuntimeError):
    """Two programs of a kernel under `debug="races"` access one place, and one of them writes
    there; exit 3."""

    code = "kernel-data-race"
    exit_code = 3
    template = (
        "kernel `{kernel}`: program {program} {access} {nbytes} bytes at {where} at {line}, which"
        " program {other} {other_access} at {other_line}; {count} such accesses"
    )
    hint = "let one program write each place, or use an atomic operation"


class KernelDtypeUnsupported(AotcError, NotImplementedError):
    """A function of `aotc.kernels` does not take tensors of this element type; exit 3."""

    exit_code = 3
    template = "`{function}`: `{argument}` is of type {found}, expected {expected}"
    hint = "convert it with `.to(dtype)`"


class KernelShapeInvalid(KernelCallInvalid, RuntimeError):
    """A tensor given to a function of `aotc.kernels` has the wrong shape; exit 2."""

    template = "`{function}`: `{argument}` has shape {found}, expected {expected}"


class KernelDeviceInvalid(AotcError, RuntimeError):
    """The tensors given to a function of `aotc.kernels` lie on different devices; exit 2."""

    exit_code = 2
    template = "`{function}`: `{argument}` is on `{found}`, expected it on `{expected}`"
    hint = "move it with `.to(device)`"


class KernelDimInvalid(AotcError, IndexError):
    """A tensor given to a function of `aotc.kernels` does not have this dim; exit 2."""

    exit_code = 2
    template = "`{function}`: `dim` is {found}, expected a number from {low} to {high}"
    hint = "dims are counted from 0, or backwards from -1, the last one"


class KernelValueInvalid(KernelCallInvalid, ValueError):
    """A number given to a function of `aotc.kernels` is out of its range; exit 2."""


class KernelTargetInvalid(AotcError, IndexError):
    """A target of `cross_entropy` is not the number of a class; exit 2."""

    exit_code = 2
    template = "`cross_entropy`: a target is {found}, expected a number from 0 to {classes} - 1"
    hint = "rows without a class have the target `ignore_index`"


class KernelRowInvalid(AotcError, IndexError):
    """A number given to `embedding_bag` is not that of a row of its table; exit 2."""

    exit_code = 2
    template = "`embedding_bag`: an index is {found}, expected a number from 0 to {rows} - 1"
    hint = "give `weight` a row for every number, or map unknown ones to a row of their own"


class PatchTargetInvalid(AotcError, TypeError):
    """`aotc.kernels.patch` or `unpatch` was given something that is no module; exit 2."""

    exit_code = 2
    template = "`{function}`: `model` is a {found}, expected a `torch.nn.Module`"
    hint = "give the model itself, an instance: what wraps one often has it as `.model`"


class LogitsNotKept(AotcError, RuntimeError):
    """Logits that a patched model did not compute are read after its weights changed; exit 2."""

    exit_code = 2
    template = (
        "the logits were not computed beside the loss, and `{argument}` has changed since, "
        "expected them to be read before"
    )
    hint = "read `logits` before the optimiser's step, or skip `linear_cross_entropy` in `patch`"


class TuneError(AotcError):
    """Measuring or reading a tuning record failed; exit 4."""

    code = "tune"
    exit_code = 4
    template = "{message}"


class InternalError(AotcError):
    """A stage broke one of its own promises: a bug of aotc's, never the user's; exit 70."""

    code = "internal"
    exit_code = 70
    template = "internal error in stage `{stage}`: {detail}"
    hint = "this is a bug in aotc: please report it with the output of `aotc doctor`"


class BuildExtraMissing(UserError):
    """`aotc build` was called where torch, triton or numpy is not installed."""

    exit_code = 7
    template = "`{module}` is not installed, `{command}` needs it"
    hint = 'pip install "aotc[build]"; in a checkout of aotc: pip install ".[build]"'


class OptionInvalid(UserError):
    """An option of a build has a value that it cannot have."""

    template = "option `{name}` is {found}, expected {expected}"
    hint = "`aotc build --help` and `aot.BuildOptions` say what each option takes"


class OutputExists(UserError):
    """The output path is taken and `--force` was not given."""

    template = "output `{path}` exists"
    hint = "pass `--force` to replace it, or choose another path with `-o`"


class FileTaken(UserError):
    """A command would write over a file that is there."""

    template = "`{path}` exists already"
    hint = "choose another one with `-o`, or replace it with `--force`"


class WeightsOutside(UserError):
    """`aotc tune` is given a bundle that was built with `--weights external`."""

    template = "`{path}` does not hold its weights, expected a bundle that does"
    hint = "tune a build without `--weights external` and give its `--record` to the other build"


class UnknownTarget(UserError):
    """`--target` names no row of the target table."""

    template = "target `{target}` is not known, expected one of: {known}"
    hint = "{near}`aotc build --help` shows the form of a target, `aotc doctor` this machine's"

    def __init__(self, target: str, known: str, near: str = "") -> None:
        found = difflib.get_close_matches(target, known.split(", "), n=1)
        meant = near or (f"did you mean `{found[0]}`? " if found else "")
        super().__init__(target=target, known=known, near=meant)


class SplitUnsupported(UserError):
    """Something that a program on several GPUs cannot have."""

    template = "{what} beside `--tensor-parallel`, expected CUDA targets and kernels alone"
    hint = "build two bundles, one of them without `--tensor-parallel`"


class NothingToSplit(UserError):
    """No product of the model has weights that are worth splitting, and that can be."""

    template = (
        "nothing to split over {ranks} GPUs, expected a product with weights of at least {least} "
        "KiB, of which {ranks} divides the columns"
    )
    hint = "build it for one GPU: exchanges among several would take longer than they save"


class NothingToQuantise(UserError):
    """`--quantize` finds no weights that it could store in few bits."""

    template = (
        "`--quantize {kind}` finds nothing to quantise in `{path}`: {found}, expected layers "
        "`nn.Linear`, `nn.Embedding` or GPT-2's `Conv1D` whose rows are whole groups of 64 floats"
    )
    hint = (
        "build it without `--quantize`; for an exported program give the module that it was "
        "exported from instead, or export what is quantised already (docs/quantised.md)"
    )


class TargetDeviceAbsent(UserError):
    """`--target` asks for the device present, and there is none; exit 7."""

    exit_code = 7
    template = "no `{device}` device was found: {found}"
    hint = "name the architecture, `--target {device}:sm_90`: no device is needed to compile for it"


class UnknownCode(UserError):
    """`aotc explain` was asked for a code that no error has."""

    template = "no error has the code `{wanted}`"
    hint = "{near}`aotc explain` without an argument lists all codes"


class InputArgumentError(UserError):
    """An `--input`, `--output` or `--expect` argument of the command line does not parse."""

    code = "argument"
    template = "argument `{argument}` is not of the form {expected}"
    hint = "name each once, as in `NAME=@x.npy`; `aotc inspect BUNDLE` lists the names"


class InputFileError(UserError):
    """A file given for an input cannot be read as an array."""

    code = "input-file"
    template = "cannot read `{path}` as an array: {detail}"
    hint = "{advice}write it with `numpy.save`"


class PlotExtraMissing(UserError):
    """A picture was asked for as PNG where matplotlib is not installed."""

    exit_code = 7
    template = "`{module}`, which writes PNG files, is not installed"
    hint = 'pip install "aotc[plot]", or write `{path}`, which needs nothing'


class OutputInBundle(UserError):
    """A report, plot or trace would be written into a bundle, whose manifest does not list it."""

    template = "`{path}` lies in the bundle `{bundle}`, every file of which has its digest"
    hint = "choose a path beside the bundle"


class MeasuredFileInvalid(UserError):
    """A file does not hold what `aotc profile --json` or `aotc bench --json` prints."""

    template = "`{path}` holds {found}, expected {expected}"
    hint = "write it with `aotc {command} BUNDLE --json > FILE`"


class GoldenMismatch(AotcError):
    """The finished bundle gives other numbers than the exported model; exit 1."""

    exit_code = 1
    template = (
        "output `{name}` differs from the exported model: max error {difference:.3g} relative to "
        "max |expected|, expected at most {tolerance:.3g}"
    )
    hint = (
        "`aotc reduce SPEC -o smallest.py` finds the smallest part that differs; "
        "`--allow-mismatch` keeps the bundle"
    )


class KernelFailed(CompileError):
    """A kernel's code generation raised, or its worker process died."""

    template = "kernel `{kernel}` did not compile: {detail}"
    hint = "its source is at {source}"


class KernelTooLarge(CompileError):
    """A kernel's configuration asks for more than a multiprocessor of its target has."""

    template = "kernel `{kernel}` needs {found} {unit}, expected at most {expected}"
    hint = "leave the choice to the cost model: `--tune off`, without a `--record`"


class NothingToReduce(UserError):
    """`aotc reduce` was given a model that builds and gives torch's numbers."""

    template = "`{spec}` builds and its numbers agree, expected a model that fails"
    hint = "give the options with which the build fails, such as its `--target`"


class TuningRecordMiss(TuneError):
    """`--frozen` was given, and neither the record nor the cache has a choice for some kernels."""

    template = "{count} kernels have no line in the tuning record or the cache: {kernels}"
    hint = "run once without `--frozen` and with `--tune quick --record FILE`"


class FrozenMiss(TuneError):
    """`--frozen` was given, and some kernels are neither in the cache nor in the tuning record."""

    template = "neither in the cache nor in the tuning record: {missing}"
    hint = (
        "fill the cache first by `aotc warm SPEC` with the same targets and options, or build once "
        "without `--frozen`"
    )


class AutotuneFrozen(TuneError):
    """`AOTC_FROZEN` is set, and a kernel of `aotc.kernels.autotune` has no choice for a call."""

    template = "kernel `{kernel}` has no choice for key {key} in its record or the cache"
    hint = "run once without `AOTC_FROZEN`, and keep the choices by `aotc.kernels.write_choices`"


class TuningDeviceMissing(TuneError):
    """Kernels were to be measured where no device of their target is."""

    template = "no device here runs target `{target}`: {count} kernels cannot be measured"
    hint = "build with `--tune off`, then run `aotc tune BUNDLE` on the target machine"


class SourcesMissing(TuneError):
    """A bundle was to be tuned, and the sources of its kernels were deleted."""

    template = "bundle `{path}` has no sources of target `{target}`"
    hint = "tune while building, `aotc build --tune quick`, or keep the bundle's `sources/`"


class SourcesInvalid(TuneError):
    """A file below a bundle's `sources/` cannot be used."""

    template = "cannot use `{path}`: {detail}"
    hint = "rebuild the bundle with this version of aotc"


class TuningRecordInvalid(TuneError):
    """A line of a tuning record does not parse."""

    template = "{path}:{line}: {detail}"
    hint = "delete the line, or write the record anew with `--tune quick --record FILE`"


class SpecNotUnderstood(SpecError):
    """SPEC is none of the forms that `aotc build` takes."""

    code = "spec-form"
    template = (
        "spec `{spec}` is not of the form `FILE.py`, `FILE.py:NAME`, `PACKAGE.MODULE:NAME` or"
        " `FILE.pt2`"
    )
    hint = "{advice}`aotc init {model}` writes a spec; docs/tutorial.md begins with one"


class SpecFileMissing(SpecError):
    """The file that SPEC names is not there."""

    template = "spec file `{path}` does not exist"
    hint = "`aotc init MODEL` writes a spec"


class SpecModuleMissing(SpecError):
    """The module that SPEC names cannot be found."""

    template = "module `{module}` is not importable"
    hint = "a file is given as `{module}.py`, a module must be on the Python path"


class SpecImportFailed(SpecError):
    """The user's file raised while it was imported, or while it built the model; exit 3."""

    exit_code = 3
    template = "`{path}` failed while {doing}: {kind}: {detail}\n  at {source}"
    hint = "it has to run by itself first: `python FILE.py`"


class SpecModelMissing(SpecError):
    """The user's file has no model."""

    template = "`{path}` has no `{name}`"
    hint = (
        "give it a module-level `model` or a function `build_model()`, or name one: `{path}:NAME`"
    )


class SpecModelInvalid(SpecError):
    """What SPEC names is neither a module nor a function."""

    template = "`{name}` in `{path}` is `{found}`, expected a torch.nn.Module or a function"
    hint = "give an instance of torch.nn.Module, or a function `build_…` that returns one"


class SpecInputsMissing(SpecError):
    """The user's file has no example inputs."""

    template = "`{path}` has no `example_inputs`"
    hint = "give it a tuple, a dict, or a function that returns one, as the model is called with"


class SpecInputsInvalid(SpecError):
    """`example_inputs` cannot be the arguments of the model."""

    template = "`example_inputs` do not fit `{callee}{signature}`: {detail}"
    hint = "give a tuple of the positional arguments, or a dict of the named ones"


class SpecEntriesInvalid(SpecError):
    """`entry_points` does not say how a model is called."""

    template = "`entry_points` in `{path}` has {found}, expected {expected}"
    hint = 'by name: entry_points = {{"decode": EntryPoint(example_inputs=(token, position))}}'


class SpecTensorsEmpty(SpecError):
    """Weights or example inputs lie on the device `meta`, which keeps no elements."""

    template = "{names} lie on the device `meta`, expected tensors with elements"
    hint = "make the model on the cpu, or load its weights: `load_state_dict(…, assign=True)`"


class SpecStatesInvalid(SpecError):
    """`state_shapes` does not say which dims of which buffers vary."""

    template = "`state_shapes` in `{path}` names {found}, expected {expected}"
    hint = 'by the name of the buffer, as `dynamic_shapes` has it: {{"cache.keys": {{2: length}}}}'


class SpecDecompositionsInvalid(SpecError):
    """`decompositions` does not say which function stands for which op."""

    template = "`decompositions` in `{path}` holds {found}, expected ops with their functions"
    hint = "write `decompositions = {{torch.ops.LIBRARY.OP: function}}`"


class NativeOpInvalid(UserError):
    """`aot.native_op` was given what no op can be made of."""

    template = "native op `{op}`: {detail}"
    hint = "docs/native-backends.md has a complete example"


class ModelRaised(SpecError):
    """The model raised when it was called with its own example inputs; exit 3."""

    exit_code = 3
    template = "the model raised on `example_inputs`: {kind}: {detail}\n  at {source}"
    hint = "the model has to run on its example inputs in plain PyTorch first"


class ExportedFileInvalid(SpecError):
    """A `.pt2` file that torch cannot load, or that holds no example inputs."""

    code = "spec-exported-invalid"
    template = "`{path}` is not an exported program with example inputs: {detail}"
    hint = "write it with `torch.export.save(torch.export.export(model, args), path)`"


class SizeUnsupported(UnsupportedError):
    """A kernel would need a number where the size is dynamic."""

    template = "`{kernel}` needs a dynamic size at build time: {detail}{source}"
    hint = "give the dims narrower ranges in `dynamic_shapes`, or fix one of them"


class DimUnreadable(UnsupportedError):
    """No input of the model shows a dynamic size."""

    template = (
        "the size `{name}` cannot be read from the inputs: no dim of them is a multiple of it"
    )
    hint = "name the dims of the inputs themselves in `dynamic_shapes`, not what follows from them"


class GuardUnsupported(UnsupportedError):
    """The model holds only for sizes that meet a condition which a call cannot check."""

    template = "the exported model holds only where `{guard}`, which a call cannot check"
    hint = "give the dims ranges under which it always holds, or fix them"


class ExportFailed(UnsupportedError):
    """The model runs, but torch.export cannot make one graph of it."""

    template = "torch.export cannot make one graph of the model: {detail}\n  at {source}"
    hint = "{remedy}"


class ExportDiffers(UnsupportedError):
    """torch.export's program of the model gives other numbers than the model itself."""

    template = (
        "torch.export's program gives other numbers than the model: output {place} has"
        " max error {found} relative to max |expected|, expected at most {expected}"
    )
    hint = (
        "the model takes another branch while it is traced (`torch.compiler.is_compiling()`, a"
        " mask that is left out): give it the arguments that make both the same"
    )


class StructureUnsupported(UnsupportedError):
    """An argument or a part of the result is neither an array nor plain data."""

    template = (
        "{name} is of type `{found}`, expected arrays, numbers, text and None in {containers}"
    )
    hint = "give it another type, or register it with `torch.utils._pytree.register_pytree_node`"


class MutationUnsupported(UnsupportedError):
    """The model writes to its inputs when it runs."""

    code = "mutation"
    template = "the model changes its inputs {names} when it runs, expected it to change buffers"
    hint = "return the new value as an output, or keep it in a buffer of the module"


class StateUnsupported(UnsupportedError):
    """The model keeps buffers from call to call where that has no form yet."""

    code = "state"
    template = "the model changes its buffers {names} when it runs, together with {other}"
    hint = "give each element type a buffer of its own, or return the new value as an output"


class StateNotUniform(UnsupportedError):
    """A state of dynamic sizes has an example value that no other size can have."""

    template = "buffer `{name}` of dynamic sizes holds {found}, expected one value everywhere"
    hint = "fill it with zeros or another number: a session of other sizes starts with that"


class StateShared(UnsupportedError):
    """A buffer of dynamic sizes is reached by another name, whose size is fixed."""

    template = "the model reaches buffer `{name}` of dynamic sizes as `{other}` too"
    hint = "read and write it by one attribute of its module, and keep no second tensor of it"


class KernelNotOnHost(UnsupportedError):
    """A Triton kernel of the model's own does not compile for the processor that builds."""

    template = (
        "a Triton kernel of the model's own does not compile for the cpu, where the golden numbers "
        "are made: {detail}\n  at {source}"
    )
    hint = "write the kernel without it: every build runs the model once on the host"


class OpsUnsupported(UnsupportedError):
    """Everything in the model that has no import, each with its line."""

    template = "the model has operations that aotc cannot compile:\n{ops}"
    hint = (
        "write it with other ops, add a row to the import table (CONTRIBUTING.md), or have torch "
        "run it at each call: `--fallback torch`"
    )


class EndsUnsupported(OpsUnsupported):
    """Inputs or outputs of a kind that no program has, each with what to give instead."""

    template = "the model takes or gives what no program does:\n{ops}"
    hint = (
        "programs take and give dense tensors of float16, bfloat16, float32, float64, int8, int16, "
        "int32, int64, uint8, bool, complex64 and complex128"
    )


class ShapesUnsupported(OpsUnsupported):
    """All that has no import gives tensors that are as large as data say, each with its line."""

    hint = (
        "shapes are those of inputs, settings and `dynamic_shapes`: write what the lines say, or "
        "do this outside of the model"
    )


class FallbackRefused(OpsUnsupported):
    """With `--fallback torch`: what torch cannot run for compiled code either, with its line."""

    template = "the model has operations that neither aotc can compile nor torch run for it:\n{ops}"
    hint = "write it with other ops, or keep it outside of the model"


class FallbackProfileUnsupported(UnsupportedError):
    """`aotc profile` was asked for launches on a GPU with ops between them that torch runs."""

    code = "profile-fallback"
    template = "`{path}` runs ops through torch: `aotc profile` times such bundles on the cpu only"
    hint = (
        "`--device cpu` where the bundle has that target, or time the kernels with NVIDIA's tools"
    )


class SpecMissing(UserError):
    """A comparison with torch was asked for without the model to compare with."""

    template = "`{command}` needs the model: no SPEC was given"
    hint = "name the model that the bundle was built from: `aotc bench BUNDLE SPEC --against eager`"


class SizeUnknown(UserError):
    """`--size` names a size that no input of the bundle shows."""

    code = "size-unknown"
    template = "the bundle's calls have no size `{name}`, expected {expected}"
    hint = "`aotc inspect` lists the sizes that each call shows"
