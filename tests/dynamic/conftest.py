"""`built(name)`: the bundle of a case of `models.py`, once in a session."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch")

from aotc.aot.options import BuildOptions
from aotc.aot.pipeline import BuildReport, build

FOLDER = Path(__file__).parent


@pytest.fixture(scope="session")
def built(tmp_path_factory) -> Callable[..., tuple[Path, BuildReport]]:
    """Builds a case, or a spec given as text; answers the bundle's path and the report."""
    folder = tmp_path_factory.mktemp("dynamic")
    known: dict[str, tuple[Path, BuildReport]] = {}

    def make(name: str, text: str = "") -> tuple[Path, BuildReport]:
        if name not in known:
            spec = folder / f"{name}.py"
            spec.write_text(textwrap.dedent(text) or _case_text(name))
            report = build(
                str(spec), folder / f"{name}.aotc", ["cpu"], BuildOptions(folder / "cache")
            )
            known[name] = folder / f"{name}.aotc", report
        return known[name]

    return make


def _case_text(name: str) -> str:
    return textwrap.dedent(f"""
        import sys
        sys.path.insert(0, {str(FOLDER)!r})
        import models

        model = models.made({name!r})
        example_inputs = models.CASES[{name!r}].inputs(*models.CASES[{name!r}].example)
        dynamic_shapes = models.CASES[{name!r}].dynamic_shapes
    """)
