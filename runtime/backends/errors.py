"""Errors of native back ends: finding one, loading it, calling it, and using it in a bundle.

What is wrong with one array of a call is an `InputError` of the runtime, whose `name` begins with
library and function: `custom_add::add.out`.
"""

from __future__ import annotations

from ..errors import AotcError, IncompatibleError, InputError


class BackendError(AotcError):
    """A native back end cannot be found, loaded or used."""

    code = "backend"
    exit_code = 7
    template = "{message}"


class BackendNotFound(BackendError):
    """No library of that name is where back ends are looked for."""

    exit_code = 2
    template = "native back end `{name}` was not found; looked in: {places}"
    hint = (
        "add the folder of `lib{name}.so` to AOTC_BACKEND_PATH, or pass the path of the file; "
        "`aotc backends ls` shows what is found"
    )


class BackendUnloadable(BackendError):
    """The system's loader refused the library."""

    template = "`{path}` cannot be loaded: {detail}"
    hint = "build it for this machine, with everything that it links to; `ldd` lists what is absent"


class BackendSymbolMissing(BackendError):
    """The library does not export the entry point, so that it is not a back end."""

    code = "backend-symbol"
    exit_code = 5
    template = "`{path}` exports no `{symbol}`"
    hint = "define it as `aotc_backend.h` declares it, or use AOTC_EXPORT_BACKEND in C++"


class BackendAbi(BackendError):
    """The library was built against another version of the header."""

    exit_code = 5
    template = "`{path}` {found}, expected ABI {expected}"
    hint = "rebuild it with the headers in `aotc backends include-dir`"


class BackendName(BackendError):
    """The library holds a back end of another name than the one asked for."""

    exit_code = 5
    template = "`{path}` holds the back end `{found}`, expected `{expected}`"
    hint = "the file of back end NAME is `libNAME.so`: rename the file, or the back end"


class BackendMalformed(BackendError):
    """The table that the library gives breaks the rules of the header."""

    exit_code = 5
    template = "`{path}`: {field} is {found}, expected {expected}"
    hint = "compare it with `aotc_backend.h`; `aotc backends check FILE` shows the whole table"


class BackendRefusal(BackendError):
    """`initialize` of the library returned an error for a device."""

    code = "backend-initialize"
    template = "native back end `{name}` cannot use device {device}: {detail} (status {status})"
    hint = "`aotc backends check FILE` runs the library by itself"


class BackendConfigured(BackendError):
    """Configs were given for a back end that this process uses with others."""

    exit_code = 2
    template = "native back end `{name}` was opened with configs {found}, not with {expected}"
    hint = "a process has one configuration of a back end: give it at the first `get_backend`"


class BackendClosed(BackendError):
    """The back end was closed before the call."""

    exit_code = 2
    template = "native back end `{name}` was closed"
    hint = "open it again with `runtime.get_backend`"


class FunctionUnknown(BackendError):
    """The back end has no function of that name."""

    code = "native-function-unknown"
    exit_code = 2
    template = "native back end `{backend}` has no function `{found}`, expected one of: {known}"
    hint = "`aotc backends check FILE` lists a library's functions"


class FunctionDevice(InputError):
    """Arrays lie where the function takes none, or in different places."""

    code = "native-device"
    template = "`{function}` was given arrays on {found}, expected all on one of: {expected}"
    hint = "move them to one device that the function supports"


class FunctionArguments(InputError):
    """Too few, too many or unknown arguments of a native function."""

    code = "native-arguments"
    template = "`{function}` was given {found}, expected {expected}"
    hint = "`aotc backends ls` lists the functions with their arguments"


class FunctionScalar(InputError):
    """An argument that has to be a number is something else, or does not fit its type."""

    code = "native-scalar"
    template = "`{function}`: `{name}` is {found}, expected {expected}"
    hint = "`aotc backends ls` lists the functions with their arguments"


class FunctionFailed(BackendError):
    """A native function returned an error, or threw an exception that its border caught."""

    code = "native-function-failed"
    template = "`{function}` failed: {detail} (status {status})"
    hint = "the message is the library's own"


class NativeAbsent(IncompatibleError):
    """A bundle calls a native back end that is not on this machine."""

    template = "`{path}` calls native back end `{name}` {version}, which was not found in: {places}"
    hint = (
        "add the folder of `lib{name}.so` to AOTC_BACKEND_PATH, or build the bundle with "
        "`--embed-backends`"
    )


class NativeDiffers(IncompatibleError):
    """The native back end found here is not the one that the bundle was built with."""

    template = (
        "native back end `{name}` at `{file}` has {what} {found}, expected {expected}, with which "
        "`{path}` was built"
    )
    hint = "install that build of the library, or build the bundle again with this one"
