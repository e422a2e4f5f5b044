"""Runs what compiles through Triton on each release of it, as a table.

    python scripts/triton_versions.py [VERSION ...] [--folder .venv-triton] [--tests PATH ...]

Each release is installed by pip into a folder of its own (`pip install --no-deps --target`), which
stands before this interpreter's packages: everything else is the same for all of them. Takes PyPI
and about five minutes a release. Exits with 1 where a release fails something.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.6.0", "3.7.1", "3.8.0", "3.9.0")
TESTS = ("tests/targets", "tests/targets_cpu", "tests/kernels", "tests/lower")
MODEL = "examples/small_cnn.py"
COUNT = re.compile(r"(\d+) (passed|failed|error|skipped)")


def environment(folder: Path, version: str) -> dict[str, str]:
    """What a process needs to have this release of Triton, which is installed where it is not."""
    place = folder.resolve() / version
    if not (place / f"triton-{version}.dist-info").is_dir():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        subprocess.run([*command, "--target", str(place), f"triton=={version}"], check=True)
    paths = [str(place), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(x for x in paths if x)}


def installed(variables: dict[str, str]) -> str:
    """The release that a process with these variables imports."""
    command = [sys.executable, "-c", "import triton; print(triton.__version__)"]
    found = subprocess.run(command, env=variables, check=True, capture_output=True, text=True)
    return found.stdout.strip()


def tested(variables: dict[str, str], tests: list[str]) -> tuple[Counter[str], list[str]]:
    """How many tests ended in which way, and the lines that name those that failed."""
    # pytest ends itself where it shows Python's own traceback of a deep recursion: native ones.
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "0",
        "--tb=native",
        "-p",
        "no:cacheprovider",
    ]
    found = subprocess.run(
        [*command, *tests], env=variables, cwd=ROOT, capture_output=True, text=True, check=False
    )
    lines = found.stdout.splitlines()
    summary = next((line for line in lines[::-1] if COUNT.search(line)), "")
    counts = Counter({how: int(count) for count, how in COUNT.findall(summary)})
    bad = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    if found.returncode and not bad:
        bad = [
            f"pytest ended with {found.returncode}",
            *lines[-3:],
            *found.stderr.splitlines()[:20],
        ]
    return counts, bad


def built(variables: dict[str, str]) -> str:
    """Builds a model, which runs it on its golden input, and verifies the bundle; why it failed."""
    with tempfile.TemporaryDirectory() as folder:
        bundle = str(Path(folder, "bundle"))
        aotc = [sys.executable, "-m", "aotc.aot.cli"]
        for command in (
            ["build", MODEL, "-o", bundle, "--cache", f"{folder}/cache"],
            ["verify", bundle],
        ):
            found = subprocess.run(
                [*aotc, *command],
                env=variables,
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
            )
            if found.returncode:
                return f"`aotc {command[0]}` ended with {found.returncode}: {found.stderr[-500:]}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("versions", nargs="*", default=list(VERSIONS))
    parser.add_argument("--folder", type=Path, default=ROOT / ".venv-triton")
    parser.add_argument("--tests", nargs="*", default=list(TESTS))
    given = parser.parse_args()
    torch = importlib.metadata.version("torch")
    print(time.strftime("%Y-%m-%d", time.gmtime()), f"torch {torch}", " ".join(given.tests))
    print("| triton | passed | failed | skipped | build and run |\n| --- | --- | --- | --- | --- |")
    reasons: list[str] = []
    for version in given.versions:
        variables = environment(given.folder, version)
        assert installed(variables) == version
        why = built(variables)
        counts, bad = tested(variables, given.tests)
        failed = counts["failed"] + counts["error"]
        row = (version, counts["passed"], failed, counts["skipped"], "failed" if why else "right")
        print("| " + " | ".join(str(x) for x in row) + " |", flush=True)
        reasons += [f"{version}: {line}" for line in (why, *bad) if line]
    print("\n".join(reasons))
    return 1 if reasons else 0


if __name__ == "__main__":
    sys.exit(main())
