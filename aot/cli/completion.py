"""`aotc completion SHELL`: the script by which a shell completes commands, options and files."""

from __future__ import annotations

import click

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_AOTC_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS), metavar="SHELL")
def command(shell: str) -> None:
    """Print the completion script of SHELL: bash, zsh or fish.

    Each time the shell completes a line, the script asks `aotc` which words may come next.
    """
    click.echo(script(shell), nl=False)


def script(shell: str) -> str:
    """The script, by click; no shell has to be installed here."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None  # SHELLS are click's
    form = kind(click.Command("aotc"), {}, "aotc", VARIABLE)
    return str(form.source_template % form.source_vars()).lstrip("\n")
