"""What the documents say of the tree is so: what they name exists; folders' pages name all; what is
generated is current."""

import importlib.util
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


@pytest.mark.parametrize(
    "name", [each[1:] for each in FILES if re.fullmatch(r"/(aot|cache|runtime)/.*README\.md", each)]
)
def test_a_folder_s_page_names_its_files(name):
    """All of them: who reads the page knows what there is."""
    text, folder = (ROOT / name).read_text(), f"/{name}".removesuffix("README.md")
    own = [each.removeprefix(folder) for each in FILES if each.startswith(folder)]
    modules = [each for each in own if re.fullmatch(r"(?!__init__)\w+\.py", each)]
    assert not [each for each in modules if not re.search(rf"\b{re.escape(each)}`", text)]


def reference_pages():
    path = ROOT / "scripts" / "reference_pages.py"
    found = importlib.util.spec_from_file_location("reference_pages", path)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["commands", "settings", "errors", "ops", "python-api"])
def test_reference_pages_are_those_of_the_tables(name, expect_text):
    """After a change of a command, a setting, an error, an op or a docstring: `--bless`."""
    if name in ("ops", "python-api"):
        pytest.importorskip("torch")
    pages = reference_pages()
    expect_text(pages.FOLDER / f"{name}.md", pages.PAGES[f"{name}.md"]())


def test_every_reference_page_is_tested():
    pages = {path.stem for path in (ROOT / "docs" / "reference").glob("*.md")}
    assert pages == {"commands", "settings", "errors", "ops", "python-api"}
