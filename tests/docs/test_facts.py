"""What pages say of the outside of their text: measured figures and how to measure them again, and
the codes of errors."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from aotc.aot.cli.explain import error_classes

ROOT = Path(__file__).parents[2]
GENERATED = ("commands.md", "settings.md", "errors.md", "python-api.md", "ops.md", "CHANGELOG.md")
PAGES = sorted(
    path
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("runtime/*.md")]
    if path.name not in GENERATED
)
UNITS = r"µs|ms|s|GB/s|TB/s|GFLOP/s|TFLOP/s|tokens/s|requests/s|times as (?:fast|long)"
FIGURE = re.compile(
    rf"(?<![\w.-])\d[\d,.]*(?: ?(?:to|and|or) [\d.,]+)?\s(?:{UNITS})(?![\w/])"
    rf"|\d+\.\d+×|^\|.*(?:, | )(?:{UNITS}) \|.*\n\| ?-",
    re.MULTILINE,
)
DATE = re.compile(r"\b20\d\d-\d\d-\d\d\b")
COMMAND = re.compile(r"python -m (benchmarks[\w.]*)|\b(scripts/[\w-]+)|pytest ")
MACHINE = re.compile(r"cores|Xeon|EPYC|H100|H200|one machine|processor", re.IGNORECASE)
# Times that nobody measured: limits of waiting, and what is assumed.
NOT_MEASURED = {
    ("docs/attacks.md", "The same attacks on several formats"),
    ("docs/many-machines.md", "Ray"),
    ("docs/many-machines.md", "On paper: 1,000 models, 50 devices"),
}
# Words with a hyphen that are no codes: keys of pyproject.toml, features of plans, modes of
# torch.compile, names of tools.
NO_CODES = frozenset({
    "cache-dir", "cache-max-size", "control-flow", "data-checks", "docker-registry",
    "dynamic-shapes",
    "guarded-sizes", "tensor-parallel",
    "max-autotune", "memory-order", "native-back-ends", "reduce-overhead", "remote-cache",
    "spdx-tools", "tensor-maps", "verify-blob-attestation",
})  # fmt: skip
WITH_OTHER_NAMES = ("coverage", "fuzz", "ARCHITECTURE", "CONTRIBUTING", "rewrites", "models-")


def sections(text: str) -> list[tuple[str, str]]:
    """Headings and what stands below them, without blocks of code."""
    parts = re.split(r"(?m)^#+ +(.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    return list(zip(["", *parts[1::2]], parts[::2], strict=True))


def ids(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", PAGES, ids=ids)
def test_measured_figures_have_a_date_a_machine_and_a_command(path):
    """In their section or at the head of the page."""
    found = sections(path.read_text())
    head = "\n".join(text for _, text in found[:2])
    for heading, text in found:
        if (ids(path), heading) in NOT_MEASURED or not FIGURE.search(text):
            continue
        for wanted in (DATE, COMMAND, MACHINE):
            assert wanted.search(text) or wanted.search(head), (heading, wanted.pattern)
        for module, script in COMMAND.findall(text):
            assert not module or find_spec(module.rstrip(".")), module
            assert not script or (ROOT / script).is_file() or (ROOT / f"{script}.py").is_file()


@pytest.mark.parametrize("path", PAGES, ids=ids)
def test_codes_of_errors_exist(path):
    if path.stem.startswith(WITH_OTHER_NAMES):
        pytest.skip("names of other things have hyphens there")
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    named = set(re.findall(r"`([a-z]+(?:-[a-z]+)+)`", text))
    assert named - NO_CODES <= set(error_classes())
