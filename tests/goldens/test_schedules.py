"""Which nodes of each case share a kernel, and the candidates that the cost model ranks first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import source_cases  # noqa: F401  # the cases register themselves
from case_graphs import graph_of
from fusion_graphs import CONSUMERS, PRODUCERS
from source_table import CASES, TARGETS

from aotc.aot.lower import Candidate, lower
from aotc.aot.schedule import grow, materialize, schedule
from aotc.aot.schedule.fuse import FUSIONS, Fusion, fusion
from aotc.aot.targets.cpu.target import CPU

FOLDER = Path(__file__).parent / "schedules"
RANKED = 3  # candidates of a kernel that are expected, in this order


def _parts(target: str) -> Iterator[str]:
    for _, case in sorted(CASES.items()):
        if case.target != target:
            continue
        plan = schedule(graph_of(case.outputs()), TARGETS[target])
        lines = []
        for place, spec in enumerate(lower(plan, TARGETS[target])):
            lines += [f"{place}: {row}{_memory(row)}" for row in spec.candidates[:RANKED]]
        yield "\n".join([f"== {case.name}\n\n{plan}", *lines, ""])


def _memory(row: Candidate) -> str:
    """What a launch brings beside its arguments: scratch memory and tensor maps."""
    found = [f"{each.name} {each.nbytes} bytes" for each in row.scratch]
    for each in row.maps:
        made = each.placed(str)
        box = "×".join(map(str, made.box))
        found.append(f"{each.name} {made.dtype} box {box} swizzle {made.swizzle_bytes}")
    return "".join(f", {text}" for text in found)


@pytest.mark.parametrize("target", TARGETS)
def test_schedules(target, expect_text):
    expect_text(FOLDER / f"{target.replace(' ', '_')}.txt", "\n".join(_parts(target)))


def test_rules_of_fusion(monkeypatch, expect_text):
    """Each row of the table is asked for in its own graph, whose kernels are expected."""
    asked: set[tuple[str, str]] = set()

    def recorded(producer: str, consumer: str) -> Fusion:
        row = fusion(producer, consumer)
        asked.add((row.producer, row.consumer))
        return row

    for module in (grow, materialize):
        monkeypatch.setattr(module, "fusion", recorded)
    parts, missing = [], []
    for (producer, consumer), row in FUSIONS.items():
        asked.clear()
        node = CONSUMERS[consumer](PRODUCERS[producer]())
        found = schedule(graph_of([node]), CPU)
        parts.append(f"== {producer} into {consumer}: {row.verdict}\n\n{found}")
        missing += [(producer, consumer)] if (producer, consumer) not in asked else []
    assert not missing
    expect_text(FOLDER / "fusion.txt", "\n".join(parts))


def test_every_file_is_expected():
    names = {target.replace(" ", "_") for target in TARGETS} | {"fusion"}
    assert {path.stem for path in FOLDER.iterdir()} == names
