"""A hook of mkdocs: files outside of docs/ that pages link to become part of the site.

A link from docs/ to `../runtime/FORMAT.md` leads to the page `project/runtime/FORMAT.md`, one to
`../examples/swiglu.py` to a copy of the file. A link to a folder leads to its README.md, or, where
it has none, stays as text: a site has no listings.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = "project/"
# Text and target of a link, not of an image; code is found first, so that links in it stay.
PIECE = re.compile(
    r"(?P<code>^(?P<fence>`{3,}).*?^(?P=fence)$|`+[^`]+`+(?!\]))"
    r"|(?<!!)\[(?P<text>(?:`[^`]*`|[^\[\]])*)\]\((?P<target>[^)\s]+)\)",
    re.MULTILINE | re.DOTALL,
)


def on_files(files: Files, config: Any) -> Files:
    """Add what the pages link to, and what those link to."""
    waiting = [ROOT / "docs" / file.src_uri for file in files if file.src_uri.endswith(".md")]
    in_nav = {name for name in _nav(config.nav) if name.startswith(OUTSIDE)}
    waiting += [_source(name) for name in in_nav]
    seen = set()
    while waiting:
        path = waiting.pop()
        if path in seen or not path.is_file():
            continue
        seen.add(path)
        name = _site_name(path)
        if files.get_file_from_path(name) is None:
            level = InclusionLevel.INCLUDED if name in in_nav else InclusionLevel.NOT_IN_NAV
            files.append(File.generated(config, name, abs_src_path=str(path), inclusion=level))
        if path.suffix == ".md":
            waiting += [found for found in _linked(path) if found is not None]
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links of the checkout to where their files are in the site."""
    path = _source(page.file.src_uri)
    folder = Path(page.file.src_uri).parent

    def write(found: re.Match[str]) -> str:
        target, _, fragment = (found["target"] or "").partition("#")
        if found["code"] or not target or "://" in target or target.startswith("mailto:"):
            return found[0]
        aim = _aim(path, target)
        if aim is None:
            return found["text"] if (path.parent / target).is_dir() else found[0]
        link = os.path.relpath(_site_name(aim), folder)
        return f"[{found['text']}]({link}{'#' + fragment if fragment else ''})"

    return PIECE.sub(write, markdown)


def _nav(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    values = nav.values() if isinstance(nav, dict) else nav
    return [name for value in values for name in _nav(value)]


def _source(src_uri: str) -> Path:
    """The file in the checkout that a file of the site is."""
    if src_uri.startswith(OUTSIDE):
        return ROOT / src_uri.removeprefix(OUTSIDE)
    return ROOT / "docs" / src_uri


def _site_name(path: Path) -> str:
    name = path.relative_to(ROOT).as_posix()
    return name.removeprefix("docs/") if name.startswith("docs/") else OUTSIDE + name


def _aim(path: Path, target: str) -> Path | None:
    """The file that a link on the page at `path` leads to; None where there is none."""
    found = Path(os.path.normpath(path.parent / unquote(target)))
    if found.is_dir():
        found = found / "README.md"
    return found if found.is_file() and found.is_relative_to(ROOT) else None


def _linked(path: Path) -> list[Path | None]:
    targets = (found["target"] for found in PIECE.finditer(path.read_text(encoding="utf-8")))
    return [_aim(path, each.partition("#")[0]) for each in targets if each and "://" not in each]
