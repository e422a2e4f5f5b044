"""The `aotc` program: the table of commands, and the one place where errors become exit codes."""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import os
import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from aotc.aot.cli.examples import add_examples
from aotc.aot.cli.printing import (
    INTERNAL_EXIT_CODE,
    print_error,
    print_error_json,
    print_unexpected,
    print_usage,
    print_warning,
    texts_of,
    usage_texts,
)
from aotc.aot.cli.signals import asked, ending
from aotc.aot.cli.suggesting import SuggestingGroup, near
from aotc.aot.extensions import EXTENSIONS, extension
from aotc.aot.version import VERSION
from aotc.runtime.errors import AotcError, DiskFull, LimitReached, environment_fault

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Command → its module under aot/cli and its line in `aotc --help`. The help is here so that
# printing it imports no command.
COMMANDS: dict[str, tuple[str, str]] = {
    "build": ("build", "Compile a model into a bundle."),
    "init": ("init", "Write a spec for a model's class, or for a Hugging Face model in a folder."),
    "inspect": (
        "inspect",
        "Show a bundle's inputs, outputs, kernels and memory; runs nothing of it.",
    ),
    "report": ("report", "Write one HTML page about a bundle: graph, kernels, memory, numbers."),
    "diff": ("diff", "Compare two bundles; runs nothing of them."),
    "stubs": ("stubs", "Write a Python module with types for a bundle's entry points."),
    "tune": ("tune", "Choose a bundle's kernels again, by measurements on this machine."),
    "measure": ("measure", "Measure the tasks that `aotc tune --tasks-to` wrote, on any machine."),
    "run": ("run", "Run a bundle on numpy files or random inputs."),
    "verify": ("verify", "Check a bundle's signatures, digests, compatibility and golden numbers."),
    "sign": ("sign", "Sign a bundle's digest, for `verify` and `load` to check."),
    "push": ("push", "Send a bundle to an OCI registry or into an image layout on disk."),
    "pull": ("pull", "Fetch a bundle from an OCI registry or an image layout."),
    "sbom": ("sbom", "Print a bundle's bill of materials as an SPDX document."),
    "keygen": ("keygen", "Make a pair of keys to sign bundles with."),
    "bench": ("bench", "Measure a bundle, alone or against torch."),
    "profile": ("profile", "Time every kernel of a bundle against the device's limits."),
    "warm": ("warm", "Compile a model's kernels into the cache and write no bundle."),
    "reduce": ("reduce", "Find the smallest part of a model that fails to build or differs."),
    "backends": ("backends", "List, check and create native back ends."),
    "doctor": ("doctor", "Show this machine, installed versions and every setting."),
    "cache": ("cache", "Show, check, limit and move the artifact cache; explain its misses."),
    "explain": ("explain", "Explain an error code and what to do about it."),
    "completion": ("completion", "Print the completion script of a shell."),
}

CLOSED_PIPE_EXIT_CODE = 141  # that of a program which SIGPIPE ends

EPILOG = """\b
exit codes:
  0 ok                              4 compile or tuning failure
  1 negative answer (mismatch)      5 incompatible machine or runtime
  2 usage                           6 integrity, signature
  3 unsupported model or operation  7 environment (disk, permission, lock)
  70 internal bug                   130, 143, 129 ended by a signal

\b
first steps:
  aotc build model.py -o bundle/    compile
  aotc verify bundle/               check it where it is served
  aotc COMMAND --help               options and examples of a command
  aotc explain CODE                 what an error means
"""


class PastClick(Exception):
    """An exception on its way past click, which would print a line of its own or end with 1."""

    def __init__(self, error: Exception | KeyboardInterrupt) -> None:
        super().__init__(error)
        self.error = error


CLICKS_OWN = (BrokenPipeError, EOFError, KeyboardInterrupt)


class CommandTable(SuggestingGroup):
    """A click group whose commands are imported when they are called."""

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        """As click's; raises `PastClick`, as where the help has no reader."""
        try:
            return super().make_context(*arguments, **options)
        except CLICKS_OWN as error:
            raise PastClick(error) from error

    def invoke(self, ctx: click.Context) -> Any:
        """As click's; raises `PastClick`."""
        try:
            return super().invoke(ctx)
        except CLICKS_OWN as error:
            raise PastClick(error) from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order of their use."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now; None when there is none."""
        if cmd_name not in COMMANDS:
            return None
        if f"aotc {cmd_name}" in EXTENSIONS:
            extension(f"aotc {cmd_name}")
        module = importlib.import_module(f"aotc.aot.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = module.command
        add_examples(command, cmd_name)
        for each in getattr(command, "commands", {}).values():  # else click cuts them to a line
            each.short_help = (each.help or "").partition("\n\n")[0]
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """What may stand here in a shell: commands, from the table alone, or options."""
        from click.shell_completion import CompletionItem

        rows = [(name, line) for name, (_, line) in COMMANDS.items() if name.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(CompletionItem(name, help=line) for name, line in rows), *options]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands' lines of `--help`, from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.command(
    cls=CommandTable, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(VERSION, prog_name="aotc")
def program() -> None:
    """Compile PyTorch models ahead of time into bundles that need neither torch nor triton."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code and prints every error once, to stderr.

    With `--json` among the arguments an error is also the one JSON object on stdout.
    """
    warnings.showwarning = print_warning
    words = sys.argv[1:] if arguments is None else list(arguments)
    as_json = "--json" in words
    try:
        code = program.main(arguments, prog_name="aotc", standalone_mode=False)
        return _flushed(int(code or 0))
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        _name_command(error, words)
        if as_json:
            _report("usage", error.exit_code, usage_texts(error), _usage_fields(error))
        return print_usage(error)
    except (click.Abort, KeyboardInterrupt) as end:
        return _interrupted(end, as_json)
    except PastClick as end:
        if isinstance(end.error, KeyboardInterrupt):
            return _interrupted(end.error, as_json)
        return _failed(end.error, as_json)
    except Exception as error:
        return _failed(error, as_json)


def _interrupted(error: BaseException, as_json: bool) -> int:
    """A signal asked the command to end; returns the exit code."""
    from aotc.aot.folders import remove_own

    remove_own()
    word, code = ending(error)
    if as_json:
        _report(word, code, (word, ""))
    print(f"error: {word}", file=sys.stderr)
    return code


def _flushed(code: int) -> int:
    """The exit code, when standard output has taken all of it."""
    try:
        sys.stdout.flush()
    except OSError as fault:
        return _output_failed(fault)
    return code


def _output_failed(fault: OSError) -> int:
    """Standard output takes no more; nothing is said where its reader went away, as `head` does."""
    sys.stdout = io.StringIO()
    if isinstance(fault, BrokenPipeError):
        return CLOSED_PIPE_EXIT_CODE
    return print_error(environment_fault("write to", "standard output", fault))


def _is_of_output(error: BaseException) -> bool:
    """Whether it was raised while a result was printed."""
    step = error.__traceback__
    while step is not None and step.tb_frame.f_code is not click.echo.__code__:
        step = step.tb_next
    return step is not None


def _failed(error: Exception, as_json: bool) -> int:
    """Print an error that a command ended with; returns the exit code."""
    signalled = asked()
    if signalled is not None:
        return _interrupted(signalled, as_json)
    if isinstance(error, OSError) and _is_of_output(error):
        return _output_failed(error)
    if isinstance(error, OSError) and error.filename is not None:  # a path of the user's
        error = environment_fault("use", os.fsdecode(error.filename), error)
    elif isinstance(error, FileNotFoundError) and not _has_folder():
        error = environment_fault("use", "the current folder", error)
    else:
        error = _limit_reached(error) or error
    code, exit_code = getattr(error, "code", None), getattr(error, "exit_code", None)
    if code is None or exit_code is None:
        if as_json:
            _report("internal", INTERNAL_EXIT_CODE, (f"internal error: {error!r}", ""))
        return print_unexpected(error)
    if as_json:
        fields = error.as_map()["fields"] if isinstance(error, AotcError) else {}
        _report(str(code), int(exit_code), texts_of(error), fields)
    return print_error(error)


def _limit_reached(error: Exception) -> AotcError | None:
    """The typed error of a limit of the machine, wherever it was met: memory, open files, disk."""
    if isinstance(error, MemoryError):
        error = OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
    if not isinstance(error, OSError):
        return None
    fault = environment_fault("go on in", "this process", error)
    return fault if isinstance(fault, (DiskFull, LimitReached)) else None


def _has_folder() -> bool:
    """Whether the folder that the command was called in is still there."""
    try:
        return bool(os.getcwd())  # noqa: PTH109
    except OSError:
        return False


def _report(
    code: str, exit_code: int, texts: tuple[str, str], fields: dict[str, Any] | None = None
) -> None:
    """The error as JSON, unless nobody reads it."""
    with contextlib.suppress(OSError):
        print_error_json(code, exit_code, texts, fields)


def _name_command(error: click.ClickException, words: Sequence[str]) -> None:
    """Give a usage error its command, where click left it out: an option without its value."""
    if not isinstance(error, click.UsageError) or error.ctx is not None:
        return
    command: click.Command | None = program
    context = click.Context(program, info_name="aotc")
    for word in words:
        command = command.get_command(context, word) if isinstance(command, click.Group) else None
        if command is None:
            break
        context = click.Context(command, context, word)
    error.ctx = context


def _usage_fields(error: click.ClickException) -> dict[str, Any]:
    """What a usage error names: the command, and its option or argument."""
    context, parameter = getattr(error, "ctx", None), getattr(error, "param", None)
    names = {
        "command": None if context is None else context.command_path,
        "option": getattr(error, "option_name", None),
        "parameter": None if parameter is None else parameter.name,
        "did_you_mean": next(iter(near(error)), None),
    }
    return {name: value for name, value in names.items() if value is not None}
