"""The fields in `runtime/FORMAT.md` are those that the records declare; `--bless` writes them."""

from __future__ import annotations

import re
from pathlib import Path

import aotc.runtime
from aotc.runtime.bundle import (
    extent,
    manifest,
    native_plan,
    parameters,
    placement,
    plan,
    plan_parts,
    structure,
    torch_calls,
)
from aotc.runtime.bundle import schema as schemas

PAGE = Path(aotc.runtime.__file__).resolve().parent / "FORMAT.md"
BLOCK = re.compile(r"(?<=^```records )(\w+)\n.*?(?=^```$)", re.MULTILINE | re.DOTALL)
PARTS = {
    "manifest": (manifest.Manifest, manifest.Extras),
    "plan": (plan.Plan,),
    "parameters": (parameters.Parameters,),
    "placement": (placement.Placement,),
}
NAMED = {
    id(schemas.NAME): "name",
    id(schemas.FILE_NAME): "file name",
    id(schemas.IDENTIFIER): "symbol",
    id(schemas.DIGEST): "32 bytes",
    id(schemas.FLOAT): "float as hexadecimal text",
    id(schemas.NIL): "nil",
    id(torch_calls.OP_NAME): "op name",
    id(plan_parts.MEMORY): "memory",
    id(plan_parts.PARAMETER): "parameter",
    id(native_plan.SCALAR): "scalar",
    id(torch_calls.VALUE): "value",
    id(extent.ROWS.item): "row",
}


def number(value):
    """A limit for people: 2^40 - 1."""
    for offset, rest in ((0, ""), (1, " + 1" if value < 0 else " - 1")):
        power = abs(value) + offset
        if power > 4096 and power & (power - 1) == 0:
            return f"{'-' if value < 0 else ''}2^{power.bit_length() - 1}{rest}"
    return str(value)


class Page:
    """The lines of a part, each record and each tagged list once, in the order of their use."""

    def __init__(self):
        self.lines, self.known = {}, set()

    def record(self, fields):
        """The name of a record, whose lines are written."""
        name = fields.type.__name__
        if name not in self.known:
            self.known.add(name)
            tag = [f'  kind: "{fields.type.kind}"'] if isinstance(fields, Step) else []
            self.lines[name] = []  # before those that it names
            for field, row in fields.fields.items():
                feature = fields.type._fields[field].feature
                since = f"    where `features` has `{feature}`" if feature else ""
                tag.append(f"  {field}: {self.described(row)}{since}")
            self.lines[name] = tag
        return name

    def tagged(self, name, kinds):
        """The name of a tagged list, whose alternatives are written."""
        if name not in self.known:
            self.known.add(name)
            self.lines[name] = []
            self.lines[name] = [
                f'  ["{kind}", {", ".join(map(self.described, columns))}]'
                for kind, columns in kinds.items()
            ]
        return name

    def described(self, row):  # noqa: C901 - one case a kind of schema
        """A schema on one line."""
        name = NAMED.get(id(row))
        if isinstance(row, schemas.Tagged):
            return self.tagged(name, row.kinds)
        if name:
            return name
        match row:
            case schemas.Fields():
                return self.record(row)
            case schemas.Union():
                return " | ".join(self.record(Step(each.type)) for each in row.kinds.values())
            case structure._Tree():
                return self.described(row.rows)
            case schemas.List():
                counts = dict.fromkeys((str(row.least), number(row.limit)))
                return f"[{self.described(row.item)}] of {' to '.join(counts)}"
            case schemas.Row():
                return f"[{', '.join(map(self.described, row.columns))}]"
            case extent.Apart():
                return self.described(row.item)
            case schemas.Optional():
                return f"{self.described(row.item)} | nil"
            case schemas.Choice():
                return " | ".join(f'"{each}"' for each in row.choices)
            case schemas.Text():
                return f"text of {row.least} to {row.length}"
            case schemas.Flag():
                return "0 | 1"
            case schemas.Integer():
                reference = "[value, formula]" if getattr(row, "is_named", False) else "[value]"
                more = f" | {reference}" if row.has_numbers else ""
                step = f", a multiple of {row.step}" if row.step > 1 else ""
                limits = dict.fromkeys(map(number, (row.low, row.high)))
                return f"{' to '.join(limits)}{step}{more}"
            case torch_calls._Argument():
                return f"[keyword or empty text, *{self.described(torch_calls.VALUE)}]"
        raise AssertionError(f"no description of {row}")


class Step(schemas.Fields):
    """A record with its `kind`."""


def written(match):
    """A block of the page anew."""
    part = match[1]
    page = Page()
    for kind in PARTS[part]:
        page.record(schemas.Fields(kind))
    blocks = (f"{name}\n" + "\n".join(rows) + "\n" for name, rows in page.lines.items())
    return f"{part}\n" + "\n".join(blocks)


def test_the_page_has_the_fields_that_are_declared(expect_text):
    text = PAGE.read_text()
    assert [match[1] for match in BLOCK.finditer(text)] == list(PARTS)
    expect_text(PAGE, BLOCK.sub(written, text))
