"""The runtime's errors: one class each, with fields and one message template.

A raise site names fields only: `raise BundleTruncated(path=…, found=12, expected=48)`. Messages are
lower case, found before expected, without a period; the hint is the next step. Every class has a
stable `code`, its name with hyphens unless it says another, and the command line's `exit_code`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_WORDS = {ord(letter): f"-{letter.lower()}" for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}


class AotcError(Exception):
    """Base of every error that aotc raises on purpose; `str()` is the message and its hint."""

    code = "error"
    exit_code = 70
    template = "{message}"
    hint = output_hint = ""

    def __init_subclass__(cls) -> None:
        if "code" not in vars(cls):
            cls.code = cls.__name__.translate(_WORDS)[1:]

    def __init__(self, **fields: Any) -> None:
        self.fields = fields
        self.message: str = self.template.format(**fields)
        super().__init__(self.message)

    def __getattr__(self, name: str) -> Any:
        """Fields of the error read as attributes: `error.path`."""
        if name != "fields" and name in self.fields:
            return self.fields[name]
        raise AttributeError(name)

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors travel between processes with their fields."""
        return _rebuild, (type(self), self.fields)

    @property
    def hint_text(self) -> str:
        """The hint with its fields filled in; empty when there is no next step."""
        hint = self.output_hint if self.fields.get("role") == "output" else ""
        return (hint or self.hint).format(**self.fields)

    def __str__(self) -> str:
        hint = self.hint_text
        return f"{self.message}\nhint: {hint}" if hint else self.message

    def as_map(self) -> dict[str, Any]:
        """The error as plain data, for `--json` and for logs."""
        return {
            "code": self.code,
            "message": self.message,
            "hint": self.hint_text,
            "fields": {name: _plain(value) for name, value in self.fields.items()},
        }


def _rebuild(kind: type[AotcError], fields: dict[str, Any]) -> AotcError:
    return kind(**fields)


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


# The bundle's bytes: exit 6.


class BundleError(AotcError):
    """A bundle is not what its manifest says, or has no readable manifest."""

    code = "bundle"
    exit_code = 6
    template = "{path}: {detail}"
    hint = "copy the bundle again from where it was built, or rebuild it"


class BundleNotFound(BundleError):
    """There is no directory at the path given."""

    exit_code = 2
    template = "no bundle at `{path}`: {detail}"
    hint = "a bundle is the directory that `aotc build SPEC -o DIRECTORY` writes"


class NotABundle(BundleError):
    """The directory has no manifest, or a file that does not start with the format's magic."""

    template = "`{path}` is not a bundle: {detail}"
    hint = "a bundle is the directory that `aotc build SPEC -o DIRECTORY` writes"


class BundleTruncated(BundleError):
    """A file ends before its own header or the manifest says it does; sizes in bytes."""

    template = "`{path}` is truncated: it has {found} bytes, expected {expected}"


class BundleFileMissing(BundleError):
    """A file that the manifest lists is not in the bundle."""

    template = "`{path}` is missing from the bundle"


class BundleFileRefused(BundleError):
    """A listed file is not a plain file inside the bundle (a link, a directory, a device …)."""

    template = "`{path}` is {found}, expected a plain file inside the bundle"
    hint = "copy the bundle with its files, not with links to them"


class BundleSizeMismatch(BundleError):
    """A file is longer than the manifest or its own header says; sizes in bytes."""

    code = "bundle-size"
    template = "`{path}` has {found} bytes, expected {expected}"


class BundleAltered(BundleError):
    """The bytes of a file do not give the digest that the manifest lists for them."""

    template = "`{path}` was altered: {where} has sha256 {found}, expected {expected}"


class BundleLimit(BundleError):
    """A count or size in the bundle is over the format's limit; refused before it is read."""

    template = "`{path}`: {what} is {found}, over the limit of {limit}"
    hint = "limits are listed in FORMAT.md; no bundle that aotc writes comes near them"


class BundleMalformed(BundleError):
    """A field of the bundle is outside its schema."""

    template = "`{path}`: field `{field}` is {found}, expected {expected}"


class DigestMismatch(BundleError):
    """A digest was asked for, and the bundle has another one."""

    template = "`{path}` has the bundle digest sha256:{found}, expected sha256:{expected}"
    hint = "this is another build; pin its digest on purpose, or fetch the expected one"


class GoldenMissing(BundleError):
    """The bundle holds no golden numbers, since its extras were deleted."""

    exit_code = 2  # the user has inputs to give instead
    template = "`{path}` holds no golden numbers"
    hint = "give inputs with `--input NAME=@FILE.npy`, or copy the bundle with all its files"


class GoldenDiffers(BundleError):
    """The bundle does not give the numbers on this machine that its golden file holds."""

    exit_code = 1
    template = (
        "output `{name}` differs from the golden output: max error {difference:.3g} relative to "
        "max |expected|, expected at most {tolerance:.3g}"
    )
    hint = "report it with the output of `aotc doctor`"


# The machine or the runtime does not fit the bundle: exit 5.


class IncompatibleError(AotcError):
    """The bundle is sound, but not for this machine or this runtime."""

    code = "incompatible"
    exit_code = 5
    template = "{path}: {detail}"


class FormatTooNew(IncompatibleError):
    """The bundle's format version is above what this runtime reads."""

    template = "`{path}` has format {found}, this runtime reads {expected}"
    hint = "install the version of aotc on this machine that built it, or a later one"


class FormatTooOld(IncompatibleError):
    """The bundle's format version is below what this runtime reads."""

    template = "`{path}` was built by an earlier format, {found}; this runtime reads {expected}"
    hint = "build it again with this version of aotc"


class PlanFeatureUnknown(IncompatibleError):
    """A plan needs a feature that this runtime does not know."""

    template = "`{path}` needs the feature `{found}`, which this runtime does not know"
    hint = "install the version of aotc on this machine that built it, or a later one"


class BundleIncompatible(IncompatibleError):
    """Nothing in the bundle runs here; `mismatches` holds every reason as `check` returns them."""

    template = "`{path}` does not run on this machine: {summary}"
    hint = "{advice}"


class DeviceUnknown(IncompatibleError):
    """`load(…, device=…)` names a device that the bundle holds no target for."""

    exit_code = 2
    template = "device `{found}` is not in the bundle, expected one of: {expected}"
    hint = "rebuild with `--target` for that device"


# A call's arguments: exit 2.


class InputError(AotcError):
    """An argument of a program call does not fit the program's signature."""

    code = "input"
    exit_code = 2
    template = "{message}"


class InputCount(InputError):
    """More positional inputs than the program has."""

    template = "{found} inputs were given, expected {expected}: {names}"
    hint = "`aotc inspect BUNDLE` lists the inputs in their order"


class InputMissing(InputError):
    """An input was not given."""

    template = "input `{name}` is missing, expected {expected}"
    hint = "`aotc inspect BUNDLE` lists the inputs"


class InputUnknown(InputError):
    """A keyword names no input, or names one that was given by position."""

    template = "input `{name}` {detail}, expected inputs: {names}"
    hint = "`aotc inspect BUNDLE` lists the inputs"


class InputDtype(InputError):
    """An array has another element type than the program takes."""

    template = "{role} `{name}` has dtype {found}, expected {expected}"
    hint = "convert it before the call; aotc never converts silently"
    output_hint = "give an array of the output's dtype"


class InputRank(InputError):
    """An array has another number of dims than the program takes."""

    template = "{role} `{name}` has rank {found} (shape {shape}), expected rank {rank} {expected}"
    hint = "`aotc inspect BUNDLE` lists the shapes"


class InputShape(InputError):
    """An array has another shape than the program was built for."""

    template = "{role} `{name}` has shape {found}, expected {expected}"
    hint = "shapes are fixed at build time: rebuild with this shape, or pad the input"
    output_hint = "give an array of the shape that the output has for these inputs"


class InputDevice(InputError):
    """An array lies on another device than the program's target runs on."""

    template = "{role} `{name}` is on device {found}, expected {expected}"
    hint = "move it first, for torch with `.to('{expected}')`"


class InputGradient(InputError):
    """A torch tensor asks for gradients, which a bundle cannot give."""

    template = "input `{name}` requires a gradient, expected an array without one"
    hint = "pass `{name}.detach()`, or call under `torch.no_grad()`"


class InputUnreadable(InputError):
    """An argument is not an array: neither DLPack nor the buffer protocol reads it."""

    template = "{role} `{name}` is {found}, expected {expected}"
    hint = "pass a torch tensor, a numpy array, or anything with DLPack or the buffer protocol"


class InputNotContiguous(InputError):
    """`bind` was given an array that a call would have to copy first."""

    template = "an input of `bind` has gaps or another order, expected what every call reads again"
    hint = "copy it once into the order that `aotc inspect` lists, on a device aligned to 16 bytes"


class OutputCount(InputError):
    """`out=` holds another number of arrays than the program has outputs."""

    template = "`out` has {found} arrays, expected {expected}"
    hint = "give one array for each output, as `aotc inspect BUNDLE` lists them"


class OutputUnusable(InputError):
    """An array given as `out=` or to `bind` cannot be used in place."""

    template = "{role} `{name}` is {found}, expected {expected}"
    hint = "give a writable array without gaps, of the dtype and shape that `aotc inspect` lists"


class ProgramClosed(InputError):
    """The program or session was closed before the call; what: "program" or "session"."""

    template = "the {what} was closed"
    hint = "keep it open while it is used; `load` opens a program, `program.session` a session"


# The environment: exit 7.


class EnvironmentFault(AotcError):
    """The machine refused something: a full disk, a permission, a missing service."""

    code = "environment"
    exit_code = 7
    template = "cannot {action} `{path}`: {detail}"
    hint = "see that its folder exists, with the rights and the space that this needs"


class BundleReplaced(EnvironmentFault):
    """Writers replaced the bundle's directory again and again while it was read."""

    template = "`{path}` was replaced while it was read"
    hint = "try again when its writers have ended"


class MemoryFull(EnvironmentFault, MemoryError):
    """The system has no room in memory for what is to be loaded or returned; size in bytes."""

    template = "no memory for {purpose}: {nbytes} bytes are needed"
    hint = "free memory, give smaller inputs, or raise the process's limits"


class DiskFull(EnvironmentFault):
    """No space or quota is left for a file that aotc writes."""

    hint = "free space there, or choose another path; nothing was left half-written"


class LimitReached(EnvironmentFault):
    """The system gives this process no more memory, or no more open files."""

    hint = "free memory or close files, or raise the limits of this process or its container"


class PermissionMissing(EnvironmentFault):
    """The user may not read or write a path."""

    code = "permission"
    hint = "check the owner and mode of the path"


class ExtensionMissing(EnvironmentFault):
    """A part of aotc that may be left out is needed and not installed."""

    template = "`{module}` is not installed, which {purpose} needs"
    hint = "install all of aotc on this machine: some of its folders are absent"


class DriverFault(EnvironmentFault):
    """The device's driver or the system loader refused the bundle's code."""

    code = "driver"
    template = "driver `{driver}` failed: {detail}"
    hint = "run it again; `aotc doctor` shows what is installed and what the driver says"


class LibraryUnsealed(DriverFault):
    """No sealed copy of a library can be made in memory; a file could change after its check."""

    template = "no sealed copy of a library of {nbytes} bytes: found {found}, expected {expected}"
    hint = "{advice}"


class SettingInvalid(AotcError):
    """A setting of the environment, a flag or `[tool.aotc]` has a value outside its type."""

    exit_code = 2
    template = "setting `{name}` is {found!r} (from {origin}), expected {expected}"
    hint = "`aotc doctor` lists every setting, its value and where it is from"


class SettingUnknown(AotcError):
    """A name that is in no row of the table of settings."""

    exit_code = 2
    template = "setting `{name}` (from {origin}) is not known, expected one of: {known}"
    hint = "`aotc doctor` lists every setting"


def environment_fault(action: str, path: str, error: OSError) -> EnvironmentFault:
    """The typed error for an `OSError` met while doing `action` on `path`."""
    import errno

    kind = EnvironmentFault
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        kind = DiskFull
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        kind = PermissionMissing
    elif error.errno in (errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN):
        kind = LimitReached
    detail = (error.strerror or str(error)).lower()
    return kind(action=action, path=path, detail=detail)


class InputStructure(InputError):
    """An argument nests in another way than the model's did."""

    template = "input `{name}` is {found}, expected {expected}"
    hint = "pass what the model was built with, or all arrays as one flat list"


class InputFixed(InputError):
    """An argument that is not an array differs from its value at build time."""

    template = "input `{name}` is {found}, expected {expected}: it was fixed at build time"
    hint = "leave it out, or build another bundle with this value in `example_inputs`"


class OutputStructure(InputError):
    """`out=` nests in another way than the program's result."""

    template = "`{name}` is {found}, expected {expected}"
    hint = "pass an earlier result of the program, or all arrays as one flat list"


class StateUnknown(InputError):
    """A state of a name that the program does not have."""

    template = "there is no state `{name}`, expected {expected}"
    hint = "`aotc inspect` lists a bundle's mutable state"


class EntryUnknown(InputError):
    """An entry point of a name that the program does not have."""

    template = "there is no entry point `{name}`, expected {expected}"
    hint = "`aotc inspect` lists a bundle's entry points"


class EntryNotNamed(InputError):
    """A program of several entry points was used as if it had one."""

    template = "the program has several entry points, expected one by name: {expected}"
    hint = "name it: `program[NAME](…)`, `session[NAME](…)`, `--entry NAME`"


class SessionBusy(InputError):
    """A call of a session while another call of it runs, which works in the same memory."""

    template = "the session is in a call, expected it to have ended: one thread at a time"
    hint = (
        "give each thread a session of its own, `program.session()`, or call the program itself, "
        "which takes one for each call"
    )


class StateBusy(InputError):
    """A call inside a call of the same thread, which its state cannot serve."""

    template = "the thread's session is in a call, expected it to have ended"
    hint = "use a session of its own: `program.session()`"


class IndexOutOfRange(InputError, IndexError, RuntimeError):
    """An element of an index lies outside of what it indexes, in the data of a call.

    operation: the op of the model; found: the element; low, high: the range, both ends inside;
    where: the line of the model. torch raises `IndexError` of some ops and `RuntimeError` of
    others; both catch it.
    """

    template = "index {found} in `{operation}`{where}, expected {low} to {high}"
    hint = "correct the data of the call; its outputs are undefined (docs/data-errors.md)"


class DivisionByZero(InputError, ZeroDivisionError, RuntimeError):
    """An integer is divided by 0 in the data of a call.

    operation: the op of the model; where: its line. torch raises `RuntimeError`.
    """

    template = "divisor 0 in `{operation}`{where}, expected another integer"
    hint = "correct the data of the call; its outputs are undefined (docs/data-errors.md)"


class AssertionFailed(InputError, RuntimeError):
    """What the model asserts of its data does not hold for those of a call.

    asserted: the model's message; where: its line. torch raises `RuntimeError`.
    """

    template = "{asserted}{where}"
    hint = "correct the data of the call; its outputs are undefined (docs/data-errors.md)"


class SizeOutOfRange(InputError):
    """A dynamic size lies outside of the range that the program was built for."""

    code = "size-range"
    template = "size `{size}` is {found} ({role} `{name}`, dim {axis}), expected {low} to {high}"
    hint = "rebuild with a `Dim` of a wider range (sizes are 1 and more), or pad or split the input"


class SizeMismatch(InputError):
    """A dim of an array does not fit the sizes that other dims of the call have."""

    template = "{role} `{name}` has {found} at dim {axis}, expected {expected}"
    hint = "dims that share a name in `dynamic_shapes` have one size in a call"


class SessionSizeUnknown(InputError):
    """A session was asked for with a size that no state of the program has."""

    template = "a session has no size `{name}`, expected {expected}"
    hint = "`aotc inspect` lists the sizes that a session fixes; others are read from each call"


class SessionSizeInvalid(InputError):
    """A size of a session is not a whole number within its range."""

    code = "session-size"
    template = "size `{name}` of a session is {found}, expected a whole number from {low} to {high}"
    hint = "rebuild with a `Dim` of a wider range in `state_shapes`"


class SessionSizeDiffers(InputError):
    """A call shows another size than its session has been opened with."""

    template = (
        "size `{size}` is {found} ({role} `{name}`, dim {axis}), expected {expected}, with which "
        "the session was opened"
    )
    hint = "open a session of that size: `program.session({size}={found})`"


class HostMemoryFull(DriverFault):
    """There is not enough host memory for a session's states; sizes in bytes. Nothing changed."""

    template = "no memory for {purpose}: needs {needed_bytes} bytes, {free_bytes} are free"
    hint = "close sessions that are not in use, or open them with smaller sizes"


class SizeGuard(InputError):
    """The sizes of a call break a condition under which the model was exported."""

    template = "the sizes break `{guard}` ({sizes}), expected sizes for which it holds"
    hint = "the model was exported under this condition: pad the input, or rebuild"


class SizeInvalid(InputError):
    """The sizes of a call are within their ranges, but too large together."""

    template = "the sizes of the call lead to {found}, expected {expected}"
    hint = (
        "a tensor may have 2147483647 elements, a GPU's kernel 65535 programs along y and z: make "
        "the inputs smaller, or rebuild with an example as large"
    )


class InputStrided(InputError):
    """An array on a device has gaps or another order, and its library has no way to copy it."""

    template = "{role} `{name}` is {found}, expected {expected}"
    hint = "copy it into that order with its own library first"


class InputMisaligned(InputError):
    """An array on a device starts where kernels cannot read it."""

    template = "{role} `{name}` starts at {found}, expected a multiple of {expected} bytes"
    hint = "copy it: an allocation of its own is aligned, a part of another one need not be"


class StreamUnreadable(InputError):
    """`stream=` is not a stream."""

    template = "`stream` is {found}, expected a CUDA stream"
    hint = "pass torch's or cupy's stream object, or its handle as a whole number"


class FallbackUnavailable(IncompatibleError):
    """The bundle has ops that torch runs, and torch or some of them are not here: `ops`."""

    template = "`{path}` runs ops through torch, which is {found}, expected {expected}"
    hint = "{advice}, or rebuild the model without `--fallback torch`"


class FallbackFailed(InputError):
    """torch refused to run an op of the bundle on the numbers of this call."""

    template = "`{op}`, which torch runs, raised {kind}: {detail}"
    hint = "the exported model raises the same in torch: look at the inputs of this call"


class FallbackResult(EnvironmentFault):
    """An op gave another type of result than it had when the bundle was built."""

    template = "result {index} of `{op}`, which torch runs, is {found}, expected {expected}"
    hint = "the library of the op is another one than at the build: rebuild the bundle with it"


class WeightsUnreadable(InputError):
    """What was given as weights cannot be read: no safetensors, or cut off."""

    template = "weights `{source}`: {found}, expected {expected}"
    hint = "the program keeps its weights"


class WeightsMismatch(InputError):
    """Tensors that were given as weights are not those of the model; lists of their names:
    missing, extra, misshapen, mistyped, fixed (see `problems`)."""

    template = "weights `{source}` do not fit the program: {problems}"
    hint = "the program keeps its weights; those that are `fixed` are part of its code"


class WeightsNotReplaceable(InputError):
    """The bundle does not say how its weights are made of the model's parameters."""

    template = "the weights of this bundle cannot be replaced: {reason}"
    hint = "{remedy}"


class AdapterMismatch(InputError):
    """An adapter has other `modules` than the model, other sizes, or a kind that is not known."""

    template = "adapter `{source}` does not fit the program: {problem}: {modules}"
    hint = "the program keeps its weights"


class WeightsAbsent(InputError):
    """A bundle that was built with `--weights external` is loaded without weights."""

    template = "`{path}` does not hold its weights"
    hint = "give the model's files: `load(…, weights=PATH)`, or AOTC_WEIGHTS=PATH"


class SwapIncompatible(IncompatibleError):
    """A bundle does not take the place of another one: calls of the old one would not fit it."""

    template = "{path}: {what} is {found}, expected {expected}, as the bundle that serves has"
    hint = "build it from the same signature, or allow it: `swap(path, allow_changes=True)`"


class SwapRunning(InputError):
    """A deployment is swapped, drained or closed by the `warm_up` of a swap of its own."""

    template = "a swap of this deployment runs in this thread, expected it to have ended"
    hint = "`warm_up` is given the new program: call that alone"


class Overloaded(EnvironmentFault):
    """A batcher's queue is full."""

    template = "{found} requests wait already, expected fewer than {limit}"
    hint = "answer 503, or raise `max_queue`; a longer queue does not raise the throughput"


class BatcherClosed(InputError):
    """A request to a batcher after it was closed."""

    template = "the batcher is closed, expected it to be open"
    hint = "close it after the last request, or make another one: `runtime.Batcher`"


class BatcherOption(InputError):
    """An argument of a batcher is out of its range or of another type."""

    template = "`{name}` is {found}, expected {expected}"
    hint = "docs/serving.md shows a batcher with its options"


class DeadlinePassed(EnvironmentFault):
    """A request's time ended before a batch took it, or before its result was there."""

    template = "the request had no result after {found} s, expected one within {limit} s"
    hint = "answer 504; where it happens often, allow fewer requests to wait or add workers"


class NotBatched(InputError):
    """A program whose calls cannot be joined along a dynamic dim."""

    template = "{what} is {found}, expected {expected}"
    hint = "build with the batch as a dynamic first dim of every input and output"
