"""Parts of a page: tables that sort, lists of facts, folded parts; numbers as people read them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from aotc.aot.charts.markup import Markup, joined, tag
from aotc.aot.charts.units import bytes_text, time_text


@dataclass(frozen=True, slots=True)
class Number:
    """A cell that sorts by its value and shows a text."""

    value: float
    text: str


Cell = str | int | Number | Markup | None


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    label: str,
    is_sorted: bool = True,
    chosen: Collection[int] = (),
    body: str | None = None,
) -> Markup:
    """A table that scrolls by itself; columns in which every cell is None are left out.

    chosen: rows to be marked; body: an id for its rows.
    """
    made = [list(row) for row in rows]
    shown = [at for at in range(len(heads)) if not made or any(row[at] is not None for row in made)]
    heads, made = [heads[at] for at in shown], [[row[at] for at in shown] for row in made]
    is_number = [
        bool(made) and all(isinstance(row[at], (Number, int)) or row[at] is None for row in made)
        for at in range(len(heads))
    ]
    head = tag("tr", *(_head(*pair, is_sorted) for pair in zip(heads, is_number, strict=True)))
    lines = [
        tag("tr", *map(_cell, row), class_="chosen" if at in chosen else None)
        for at, row in enumerate(made)
    ]
    whole = tag("table", tag("thead", head), tag("tbody", *lines, id=body))
    return scrolled(whole, label)


def scrolled(inside: Markup, label: str, class_: str = "", id_: str | None = None) -> Markup:
    """What is wider or taller than its place, which the keyboard scrolls too."""
    names = f"scroll tall {class_}".strip()
    return tag("div", inside, class_=names, tabindex=0, role="region", aria_label=label, id=id_)


def facts(rows: Iterable[tuple[str, str | Markup]]) -> Markup:
    """Names with their values, in boxes."""
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in rows),
               class_="facts")  # fmt: skip


def folded(summary: str | Markup, *inside: Markup | str, id_: str | None = None) -> Markup:
    """A part that is shown on request."""
    return tag("details", tag("summary", summary), tag("div", *inside, class_="inside"), id=id_)


def source(text: str) -> Markup:
    """Program text."""
    return tag("pre", tag("code", text), tabindex=0)


def paragraph(*inside: str | Markup) -> Markup:
    """A paragraph in muted type, which says how to read what follows."""
    return tag("p", *inside, class_="muted")


def code(text: str) -> Markup:
    """A name of the program's."""
    return tag("code", text)


def link(text: str | Markup, name: str) -> Markup:
    """A link to a part of this page."""
    return tag("a", text, href=f"#{name}")


def bytes_cell(count: int | None) -> Number | None:
    """A size."""
    return None if count is None else Number(count, bytes_text(count))


def time_cell(time_us: float | None) -> Number | None:
    """A duration."""
    return None if time_us is None else Number(time_us, time_text(time_us))


def _head(text: str, is_number: bool, is_sorted: bool) -> Markup:
    name = tag("button", text, type="button") if is_sorted else text
    return tag("th", name, scope="col", class_="number" if is_number else None)


def _cell(cell: Cell) -> Markup:
    if cell is None:
        return tag("td", "–", class_="number", data_value=-1)
    if isinstance(cell, Number):
        return tag("td", cell.text, class_="number", data_value=f"{cell.value:g}")
    if isinstance(cell, int):
        return tag("td", cell, class_="number", data_value=cell)
    return tag("td", cell)


__all__ = ["Number", "facts", "folded", "joined", "table"]
