"""Every page of docs/ is in the site's navigation, and every link of every page leads somewhere."""

import re
import subprocess
from pathlib import Path

import pytest

from aotc.aot.cli.explain import error_classes

ROOT = Path(__file__).parents[2]
CODE = re.compile(r"^(`{3,}).*?^\1$|`+[^`\n]+`+", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)")
NAV = re.compile(r"^ +- (?:[^:\n]+: )?(\S+\.md)$", re.MULTILINE)


def pages():
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", "*.md"]
    found = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    names = [name for name in found.split("\0") if name and not name.startswith("aotc/")]
    return [name for name in names if (ROOT / name).is_file()]


PAGES = pages()


def targets(text):
    return LINK.findall(CODE.sub(lambda found: "`" * bool(found[1] is None), text))


def headings(path):
    """The fragments that a page has, as GitHub and the site make them of its headings."""
    text = re.sub(r"^(`{3,}).*?^\1$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    found = [re.sub(r"[`*]", "", each).strip() for each in re.findall(r"^#+ (.+)$", text, re.M)]
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in found}


def broken(path):
    for target in targets(path.read_text()):
        if re.match(r"(https?|mailto):", target):
            continue
        name, _, fragment = target.partition("#")
        aim = (path.parent / name).resolve() if name else path
        if not aim.exists() or not aim.is_relative_to(ROOT):
            yield f"{target}: there is no such file"
        elif fragment and aim.suffix == ".md" and fragment not in headings(aim):
            yield f"{target}: {aim.name} has no such heading"


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name):
    assert list(broken(ROOT / name)) == []


def test_broken_links_are_found(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    page = tmp_path / "a.md"
    page.write_text(
        "# A heading\n[a](b.md) `[c](d.md)` [e](#a-heading) [f](#g) [h](https://i.org)\n"
    )
    assert [each.partition(":")[0] for each in broken(page)] == ["b.md", "#g"]


def test_troubleshooting_names_errors_that_there_are():
    rows = re.findall(r"^\| (`.+?) \|", (ROOT / "docs" / "troubleshooting.md").read_text(), re.M)
    codes = [code for row in rows for code in re.findall(r"`([\w-]+)`", row)]
    assert len(codes) > 20
    assert [code for code in codes if code not in error_classes()] == []


def test_navigation_names_every_page_once():
    named = NAV.findall((ROOT / "mkdocs.yml").read_text())
    expected = [name.removeprefix("docs/") for name in PAGES if name.startswith("docs/")]
    inside = [name for name in named if not name.startswith("project/")]
    assert sorted(inside) == sorted(expected)
    outside = [ROOT / name.removeprefix("project/") for name in set(named) - set(inside)]
    assert [path for path in outside if not path.is_file()] == []
