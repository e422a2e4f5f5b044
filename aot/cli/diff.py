"""`aotc diff A B`: what two bundles say differently; nothing of them is run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aotc.aot.cli import flags
from aotc.aot.cli.printing import print_json, print_table
from aotc.aot.printable import printable

if TYPE_CHECKING:
    from aotc.aot.diff.diff import Change, Difference

SHOWN = 20  # of each section, unless all are asked for
CELL_LENGTH = 200  # of names and values in a table; --json has them whole
SECTION_NAMES = (
    "signature", "entries", "settings", "ops", "fusion", "graph", "kernels", "sizes", "times",
    "numbers", "weights", "files",
)  # fmt: skip


@click.command("diff")
@click.argument("one", metavar="A", type=click.Path(path_type=Path))
@click.argument("other", metavar="B", type=click.Path(path_type=Path))
@click.option(
    "--ignore",
    "ignored",
    multiple=True,
    type=click.Choice(SECTION_NAMES),
    help="Leave a section out; may be given repeatedly.",
)
@click.option("--all", "has_all", is_flag=True, help=f"Print more than {SHOWN} lines a section.")
@flags.as_json
def command(one: Path, other: Path, ignored: Sequence[str], has_all: bool, as_json: bool) -> int:
    """Compare the bundles A and B: signature, entry points, settings, ops, fusion, graph, kernels,
    sizes, times, golden numbers, weights and files.

    Exit 0 when they are the same, 1 when they differ. Every byte of both is checked against its
    digest. `--ignore` leaves out a section, and the files that hold only such facts.
    """
    from aotc.aot.diff.diff import diff
    from aotc.aot.facts.bundle_facts import read_facts

    found = diff(read_facts(one), read_facts(other), ignored)
    if as_json:
        print_json("aotc.diff/1", found.record())
    else:
        _print(found, has_all)
    return 0 if found.is_empty else 1


def _print(found: Difference, has_all: bool) -> None:
    if found.is_empty:
        click.echo("same")
        return
    for name in SECTION_NAMES:
        rows = found.sections.get(name, ())
        if rows:
            _print_section(name, rows, has_all)
        if name == "graph":
            _print_graphs(found, has_all)
    sections = [*found.sections, *(["graph"] if found.graphs else [])]
    click.echo(f"\ndiffer in {', '.join(each for each in SECTION_NAMES if each in sections)}")


def _print_section(name: str, rows: Sequence[Change], has_all: bool) -> None:
    click.echo(f"{name}: {len(rows)} differ")
    shown = rows if has_all else rows[:SHOWN]
    print_table(
        ("  name", "A", "B"),
        [(f"  {_text(row.name)}", _text(row.one), _text(row.other)) for row in shown],
    )
    _print_rest(len(rows) - len(shown))


def _print_graphs(found: Difference, has_all: bool) -> None:
    for graph in found.graphs:
        click.echo(f"graph: {graph.label}: {len(graph.nodes)} nodes differ")
        shown = graph.nodes if has_all else graph.nodes[:SHOWN]
        for node in shown:
            click.echo(f"  {printable(node, '')}")
        _print_rest(len(graph.nodes) - len(shown))


def _print_rest(count: int) -> None:
    if count:
        click.echo(f"  and {count} more: --all prints them")


def _text(value: object) -> str:
    text = "-" if value is None else str(value)
    return text if len(text) <= CELL_LENGTH else f"{text[:CELL_LENGTH]}…"
