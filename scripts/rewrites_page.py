#!/usr/bin/env python3
"""Writes the tables of docs/rewrites.md from the tables of rules and their comments.

scripts/rewrites_page.py            write the page
scripts/rewrites_page.py --check    fail if it differs
"""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from pathlib import Path

from aotc.aot.rewrites.rewrite import TABLES

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "rewrites.md"
BEGIN, END = "<!-- scripts/rewrites_page.py writes from here -->", "<!-- to here -->"
# A row's comment, then its name, in the call that makes the rule.
ROW = re.compile(
    r"^    # (?P<equation>.+)\n(?:    # .+\n)*"
    r"    (?:Rule|inexact|rule_for|_opposite)\(\s*(?:\([^)]*\)|\w+)?,?\s*\"(?P<name>[\w-]+)\"",
    re.MULTILINE,
)
FOUND_AS = {
    "SIGMOID": "sigmoid", "SILU": "SiLU", "GELU": "GELU", "GELU_TANH": "GELU, tanh form",
    "LAYER_NORM": "LayerNorm, one kernel", "RMS_NORM": "RMSNorm, one kernel",
    "SOFTMAX": "softmax, one kernel", "ATTENTION": "attention", "CAUSAL": "causal attention",
    "ROTARY": "rotary embedding, one kernel", "GATED": "gate and up as one product",
    "SCALARS": "factors in a row", "NOTHING": "what changes nothing",
}  # fmt: skip


def main() -> int:
    """Write the page, or with `--check` compare it."""
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    written = f"{before}{BEGIN}\n{tables()}\n{END}{after}"
    if "--check" in sys.argv:
        return int(written != page)
    PAGE.write_text(written, encoding="utf-8")
    return 0


def tables() -> str:
    """The variants that are tested, and every rule by its file."""
    return f"{_variants()}\n\n{_rules()}"


def _variants() -> str:
    path = ROOT / "tests" / "rewrites" / "variants" / "rows.py"
    spec = importlib.util.spec_from_file_location("rows", path)
    assert spec is not None
    assert spec.loader is not None
    rows = importlib.util.module_from_spec(spec)
    sys.modules["rows"] = rows
    spec.loader.exec_module(rows)
    lines = ["| found as | variants | which |", "|---|---|---|"]
    for key, label in FOUND_AS.items():
        names = [row.name.replace("_", " ") for row in getattr(rows, key)]
        lines.append(f"| {label} | {len(names)} | {', '.join(names)} |")
    return "\n".join(lines)


def _rules() -> str:
    lines = ["| table | rule | equation |", "|---|---|---|"]
    for table, rules in TABLES.items():
        text = (ROOT / "aot" / "rewrites" / f"{table}.py").read_text(encoding="utf-8")
        written = {match["name"]: match["equation"] for match in ROW.finditer(text)}
        for rule in rules:
            said = written.get(rule.name) or (inspect.getdoc(rule.replace) or "").split("\n")[0]
            lines.append(f"| `{table}` | `{rule.name}` | {said.replace('|', chr(92) + '|')} |")
    counts = ", ".join(f"{len(rules)} in `{table}`" for table, rules in TABLES.items())
    total = sum(map(len, TABLES.values()))
    return f"{total} rules: {counts}.\n\n" + "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
