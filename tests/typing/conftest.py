"""The packages, built once a process of tests without the network: the sdist and the editable wheel
from a copy of the checkout's files, the wheel from the sdist."""

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
BUILD = """
import sys
from setuptools import build_meta
getattr(build_meta, sys.argv[1])(sys.argv[2])
"""


class Packages(NamedTuple):
    tree: Path
    sdist: Path
    wheel: Path
    editable: Path


def built(kind, tree, folder):
    """The package that setuptools makes of a tree, as pip and build call it."""
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-I", "-c", BUILD, f"build_{kind}", folder],
        capture_output=True, text=True, check=False, cwd=tree,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (package,) = folder.iterdir()
    return package


def clean_tree(tree):
    """A copy of what a fresh clone has; outside of git, of all but what was built."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            capture_output=True, check=False, cwd=ROOT)  # fmt: skip
    if listed.returncode != 0:
        shutil.copytree(ROOT, tree, symlinks=True, ignore=shutil.ignore_patterns(
            ".*", "build", "dist", "__pycache__", "*.egg-info"))  # fmt: skip
        return
    for name in filter(None, listed.stdout.decode().split("\0")):
        source, target = ROOT / name, tree / name
        if name != ".venv" and (source.is_symlink() or source.is_file()):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)


@pytest.fixture(scope="session")
def packages(tmp_path_factory):
    pytest.importorskip("setuptools", minversion="77")
    folder = tmp_path_factory.mktemp("packages")
    tree = folder / "tree"
    clean_tree(tree)
    sdist = built("sdist", tree, folder / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    wheel = built("wheel", unpacked, folder / "wheel")
    return Packages(tree, sdist, wheel, built("editable", tree, folder / "editable"))


@pytest.fixture(scope="session")
def wheel(packages):
    return packages.wheel
