"""Plans whose numbers are consistent and false, about real bundles: refused, or harmless [S4]."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hostile_models import BLOCKS, FIXED, VARYING

pytest.importorskip("torch")
pytest.importorskip("triton")


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    from aotc.aot.pipeline import BuildOptions, build

    folder, found = tmp_path_factory.mktemp("lies"), {}
    for name, text in (("fixed", FIXED), ("varying", VARYING), ("blocks", BLOCKS)):
        spec = folder / f"{name}.py"
        spec.write_text(textwrap.dedent(text))
        found[name] = folder / f"{name}.aotc"
        build(str(spec), found[name], ["cpu"], BuildOptions(folder / "cache"))
    return found


@pytest.mark.parametrize(("name", "count"), [("fixed", 1000), ("varying", 500), ("blocks", 500)])
def test_consistent_lies_are_refused_or_harmless(bundles, name, count):
    script = Path(__file__).with_name("lies.py")
    command = [sys.executable, str(script), str(bundles[name]), str(count), "7"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-500:] + ran.stderr[-2000:]
    found = dict(line.split(": ") for line in ran.stdout.splitlines() if ": " in line)
    kinds = "ran", "refused", "refused for the library's digest"
    assert all(int(found[kind]) >= count // 20 for kind in kinds), found
