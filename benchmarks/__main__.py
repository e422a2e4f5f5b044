"""`python -m benchmarks`: measures everything and writes `docs/benchmarks.md`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from benchmarks import examples, host_cost, machine, matmul, report

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- scripts/bench writes from here -->", "<!-- to here -->"
EXAMPLES = (
    "mlp_block", "mlp_block_silu_rms", "mlp_block_bf16",
    "transformer_encoder", "bert", "small_cnn", "black_scholes",
)  # fmt: skip


@click.command()
@click.option("--rounds", default=7, show_default=True, help="Turns that each contender takes.")
@click.option("--only", multiple=True, metavar="EXAMPLE", help="Measure these examples only.")
@click.option(
    "-o", "--out", type=click.Path(path_type=Path), default=ROOT / "docs" / "benchmarks.md"
)
def main(rounds: int, only: tuple[str, ...], out: Path) -> None:
    """Measure aotc beside eager torch, torch.compile and AOTInductor on this machine."""
    found = []
    for name in only or EXAMPLES:
        print(f"{name} …", file=sys.stderr, flush=True)
        found.append(examples.measure(ROOT / "examples" / f"{name}.py", rounds))
    print("matmul …", file=sys.stderr, flush=True)
    products = matmul.measure(rounds)
    print("host cost …", file=sys.stderr, flush=True)
    figures = (machine.facts(), found, products, host_cost.measure(rounds))
    page = report.render(*figures, host_cost.starts_ms())
    out.write_text(page, encoding="utf-8")
    if not only:
        _into_readme(report.summary(*figures))
    print(page)


def _into_readme(summary: str) -> None:
    """Replaces what stands between the README's two marks."""
    readme = ROOT / "README.md"
    before, _, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    readme.write_text(f"{before}{BEGIN}\n{summary}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
