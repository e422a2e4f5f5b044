"""What was meant: the nearest name of a command, an option or a file that there is."""

from __future__ import annotations

import difflib
import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

NAMES_LOOKED_AT = 10_000  # of a folder
MAY_BE_EMPTY = ("--remote-cache",)  # where that means none


class CommandUnknown(click.UsageError):
    """A group has no command of that name; exit 2."""

    def __init__(self, name: str, known: list[str], context: click.Context) -> None:
        super().__init__(f"no such command `{name}`", context)
        self.near = difflib.get_close_matches(name, known, n=1)


class EmptyArgument(click.UsageError):
    """A word of the command line is empty; exit 2."""

    hint = "is a variable of the shell not set?"


class SuggestingGroup(click.Group):
    """A click group whose usage errors carry the nearest name."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first argument names; raises CommandUnknown."""
        name = args[0] if args else ""
        is_option = name.startswith("-")
        if name and not is_option and self.get_command(ctx, name) is None:
            raise CommandUnknown(name, self.list_commands(ctx), ctx)
        _refuse_empty(args, ctx)
        return super().resolve_command(ctx, args)


def _refuse_empty(words: Sequence[str], context: click.Context) -> None:
    """A variable of the shell that is not set gives an empty word, which as a path would be the
    folder here; raises UsageError."""
    for place, word in enumerate(words):
        before = words[place - 1] if place else ""
        if not word and before not in MAY_BE_EMPTY:
            what = f"`{before}`" if before.startswith("-") else f"argument {place}"
            raise EmptyArgument(f"{what} is empty", context)


class FileThatExists(click.Path):
    """A file that the command reads, by a usage error that carries the nearest name."""

    def __init__(self) -> None:
        super().__init__(exists=True, dir_okay=False, readable=True, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path; raises BadParameter."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            meant = near_path(os.fspath(value))
            error.near = [meant] if meant else []  # type: ignore[attr-defined]
            raise


def near(error: click.ClickException) -> list[str]:
    """What a usage error's command, option or file was likely meant to be."""
    known_near: list[str] | None = getattr(error, "near", None)
    if known_near is not None:
        return known_near
    if isinstance(error, click.NoSuchOption):
        known = [] if error.ctx is None else options_of(error.ctx.command)
        return difflib.get_close_matches(error.option_name, known, n=1)
    return []


def options_of(command: click.Command) -> list[str]:
    """Every option of a command as it is written, the one for help with them."""
    return ["--help", *(text for each in command.params for text in each.opts if text[:1] == "-")]


def near_path(path: str) -> str:
    """The path like this one that exists; empty where this one exists or none is like it."""
    missing = Path(path)
    try:
        while missing.parent != missing and not os.path.lexists(missing.parent):
            missing = missing.parent
        if not path or os.path.lexists(missing):
            return ""
        with os.scandir(missing.parent) as entries:
            names = [entry.name for entry in itertools.islice(entries, NAMES_LOOKED_AT)]
        tail = Path(path).parts[len(missing.parts) :]
        for name in difflib.get_close_matches(missing.name, names, n=3):
            meant = Path(missing.parent, name, *tail)
            if meant.exists():
                return str(meant)
    except (OSError, ValueError):
        pass
    return ""
