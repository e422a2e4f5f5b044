"""Groups of commands that suggest the command which was meant."""

from __future__ import annotations

import difflib

import click


class CommandUnknown(click.UsageError):
    """A group has no command of that name; exit 2."""

    def __init__(self, name: str, known: list[str], context: click.Context) -> None:
        super().__init__(f"no such command `{name}`", context)
        self.near = difflib.get_close_matches(name, known, n=1)


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
        return super().resolve_command(ctx, args)


def near(error: click.ClickException) -> list[str]:
    """What a usage error's command or option was likely meant to be."""
    if isinstance(error, CommandUnknown):
        return error.near
    if isinstance(error, click.NoSuchOption):
        known = [] if error.ctx is None else options_of(error.ctx.command)
        return difflib.get_close_matches(error.option_name, known, n=1)
    return []


def options_of(command: click.Command) -> list[str]:
    """Every option of a command as it is written, the one for help with them."""
    return ["--help", *(text for each in command.params for text in each.opts if text[:1] == "-")]
