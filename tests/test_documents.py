"""What the documents say of the tree is so: every file that they name exists."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NAMED = re.compile(r"`([\w./-]*\w\.(?:py|md|txt|h|hpp)|[\w./-]+/)`")
# Names of files in a user's folder, a bundle or a dump, and patterns.
ELSEWHERE = re.compile(r"model\.py|my_rules\.py|out/|debug/.*|sources/.*|.*NAME.*|bundle/")


def documents():
    tracked = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    return [
        name for name in tracked if Path(name).stem in ("ARCHITECTURE", "CONTRIBUTING", "README")
    ]


@pytest.mark.parametrize("name", documents())
def test_named_files_exist(name):
    document = ROOT / name
    above = [document.parent, ROOT, ROOT / "aot", ROOT / "runtime", ROOT / "tests/goldens"]
    found = set(NAMED.findall(document.read_text()))
    missing = [
        each
        for each in sorted(found)
        if not ELSEWHERE.fullmatch(each)
        and not any((folder / each).exists() for folder in above)
        and not ("/" not in each and any(ROOT.glob(f"[a-z]*/**/{each}")))
    ]
    assert not missing
