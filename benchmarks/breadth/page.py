"""The table of a library's architectures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from benchmarks.breadth.judge import COUNTED, RIGHT, Outcome
from benchmarks.machine import without_directories

ORDER = (
    "wrong", "broken", "refused", "not judged", "not exported", "not run", "not made", "right",
)  # fmt: skip
EXPLAINED = """A model is **right** where its largest difference from its own numbers in f64 is at
most 1e-4 (in bf16 2⁻⁶, in f16 2⁻⁹) of its output's largest element, or ten times eager's own
where that is at most 1e-2 (2⁻², 2⁻⁴). Farther off eager draws or chooses otherwise than in f64:
such a model is right where it is as near to eager's numbers, and else not judged, which does not
count. Where equal scores leave the order of a top-k open, it is compared with eager whose sorts are
stable, and its row says so.
**Counted** are models that torch.export takes: right, wrong, refused (named as unsupported) and
broken (any other error, or longer than the limit). Not counted are those that torch.export refuses,
that run on none of the inputs made from their arguments' names, and that a config alone does not
make small enough."""


def render(library: str, found: Sequence[Outcome], facts: Mapping[str, str], total: int) -> str:
    """The page as Markdown."""
    verdicts = Counter(each.verdict for each in found)
    counted = sum(verdicts[each] for each in COUNTED)
    share = 100 * verdicts[RIGHT] / counted if counted else 0.0
    lines = [
        f"# Architectures of {library}{' on a GPU' if 'device' in facts else ''}",
        "",
        *(f"- {name}: {without_directories(value)}" for name, value in facts.items()),
        f"- tried: {len(found)} of {total}",
        f"- **{verdicts[RIGHT]} of {counted} that torch.export takes build and are right:"
        f" {share:.1f} %**",
        *(f"- {each}: {verdicts[each]}" for each in ORDER if verdicts[each]),
        "",
        EXPLAINED,
        "",
        "| model | class | result | difference | eager's | s | reason |",
        "|---|---|---|---:|---:|---:|---|",
    ]
    for row in sorted(found, key=lambda each: (ORDER.index(each.verdict), each.name)):
        reason = without_directories(row.reason).replace("|", "\\|")[:240]
        lines.append(
            f"| {row.name} | {row.kind} | {row.verdict} | {row.difference:.1e} | {row.eager:.1e}"
            f" | {row.seconds:.0f} | {reason} |"
        )
    return "\n".join(lines) + "\n"
