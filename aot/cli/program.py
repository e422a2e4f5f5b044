"""The `aotc` program: the table of commands, and the one place where errors become exit codes."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Sequence

import click

from aotc.aot.cli.printing import (
    INTERNAL_EXIT_CODE,
    print_error,
    print_error_json,
    print_unexpected,
    print_usage,
    print_warning,
    usage_texts,
)
from aotc.aot.cli.suggesting import SuggestingGroup
from aotc.aot.extensions import EXTENSIONS, extension
from aotc.aot.version import VERSION
from aotc.runtime.errors import environment_fault

# Command → its module under aot/cli and its line in `aotc --help`. The help is here so that
# printing it imports no command.
COMMANDS: dict[str, tuple[str, str]] = {
    "build": ("build", "Compile a model into a bundle."),
    "inspect": ("inspect", "Show what a bundle takes, gives and holds; runs nothing of it."),
    "tune": ("tune", "Choose the kernels of a bundle anew on this machine."),
    "measure": ("measure", "Measure what `aotc tune --tasks-to` has written, for any scheduler."),
    "run": ("run", "Run a bundle on numpy files or random inputs."),
    "verify": ("verify", "Check a bundle's signatures, digests, compatibility and golden numbers."),
    "sign": ("sign", "Sign a bundle's digest, for `verify` and `load` to check."),
    "push": ("push", "Send a bundle to an OCI registry or into an image layout on disk."),
    "pull": ("pull", "Fetch a bundle from an OCI registry or an image layout."),
    "sbom": ("sbom", "Print what made a bundle, as an SPDX document."),
    "keygen": ("keygen", "Make a pair of keys to sign bundles with."),
    "bench": ("bench", "Measure a bundle, alone or against torch."),
    "profile": ("profile", "Time every kernel of a bundle against the device's limits."),
    "warm": ("warm", "Fill the artifact cache for later builds, in an image build."),
    "reduce": ("reduce", "Find the smallest part of a model that fails to build or differs."),
    "backends": ("backends", "Find, check and begin native back ends."),
    "doctor": ("doctor", "Show this machine, the installed parts and every setting."),
    "cache": ("cache", "Show, check, bound, move and explain the artifact cache."),
    "explain": ("explain", "Say what an error code means and what to do."),
}

EPILOG = """\b
exit codes:
  0 ok                              4 compile or tuning failure
  1 negative answer (mismatch)      5 incompatible machine or runtime
  2 usage                           6 integrity, signature
  3 unsupported model or operation  7 environment (disk, permission, lock)
  70 internal bug
"""


class CommandTable(SuggestingGroup):
    """A click group whose commands are imported when they are called."""

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
        return command

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
        sys.stdout.flush()
        return int(code or 0)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        if as_json:
            print_error_json("usage", error.exit_code, *usage_texts(error))
        return print_usage(error)
    except (click.Abort, KeyboardInterrupt):
        print("error: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of a pipe went away: `aotc inspect … | head`
        sys.stderr.close()
        return 0
    except Exception as error:
        return _failed(error, as_json)


def _failed(error: Exception, as_json: bool) -> int:
    """Print an error that a command ended with; returns the exit code."""
    if isinstance(error, OSError) and error.filename is not None:  # a path of the user's
        error = environment_fault("use", os.fsdecode(error.filename), error)
    code, exit_code = getattr(error, "code", None), getattr(error, "exit_code", None)
    if code is None or exit_code is None:
        if as_json:
            print_error_json("internal", INTERNAL_EXIT_CODE, f"internal error: {error!r}", "")
        return print_unexpected(error)
    if as_json:
        message, _, hint = str(error).partition("\nhint: ")
        print_error_json(str(code), int(exit_code), message, hint)
    return print_error(error)
