"""Plans whose numbers are consistent and false, about real bundles: refused, or harmless [S4]."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

FIXED = """
    import torch

    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(32, 2, 64, 0.0, batch_first=True)
    model = torch.nn.Sequential(layer, torch.nn.Linear(32, 7), torch.nn.Softmax(-1)).eval()
    example_inputs = (torch.randn(2, 5, 32),)
"""
VARYING = """
    import torch
    from torch.export import Dim

    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(24, 40), torch.nn.GELU(), torch.nn.LayerNorm(40), torch.nn.Linear(40, 7)
    ).eval()
    example_inputs = (torch.randn(8, 24),)
    dynamic_shapes = ({0: Dim("rows", max=100)},)
"""


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    from aotc.aot.build import BuildOptions, build

    folder, found = tmp_path_factory.mktemp("lies"), {}
    for name, text in (("fixed", FIXED), ("varying", VARYING)):
        spec = folder / f"{name}.py"
        spec.write_text(textwrap.dedent(text))
        found[name] = folder / f"{name}.aotc"
        build(str(spec), found[name], ["cpu"], BuildOptions(folder / "cache"))
    return found


@pytest.mark.parametrize(("name", "count"), [("fixed", 1000), ("varying", 500)])
def test_consistent_lies_are_refused_or_harmless(bundles, name, count):
    script = Path(__file__).with_name("lies.py")
    command = [sys.executable, str(script), str(bundles[name]), str(count), "7"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-500:] + ran.stderr[-2000:]
    found = dict(line.split(": ") for line in ran.stdout.splitlines() if ": " in line)
    kinds = "ran", "refused", "refused for the library's digest"
    assert all(int(found[kind]) >= count // 20 for kind in kinds), found
