"""What the documents say of the tree is so: every file and folder that they name exists."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = ("ARCHITECTURE", "CONTRIBUTING", "README")
NAMED = re.compile(r"`([\w./-]*\w\.(?:py|md|txt|h|hpp)|[\w./-]+/)`")
# Names in a user's folder, a bundle or a dump, and patterns of names.
ELSEWHERE = re.compile(r"model\.py|my_rules\.py|out/|debug/.*|sources/.*|.*NAME.*|bundle/")


def tracked():
    command = ["git", "ls-files"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


FILES = [f"/{name}" for name in tracked().split()]


@pytest.mark.parametrize("name", [each[1:] for each in FILES if Path(each).stem in DOCUMENTS])
def test_named_files_exist(name):
    """A name may leave out the folders above."""
    found = sorted(set(NAMED.findall((ROOT / name).read_text())))
    missing = [
        each
        for each in found
        if not ELSEWHERE.fullmatch(each)
        and not any(file.endswith(f"/{each}") or f"/{each}" in f"{file}/" for file in FILES)
    ]
    assert not missing
