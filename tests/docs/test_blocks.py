"""What runs the pages' blocks finds what is wrong with them."""

from pathlib import Path

import pytest
from page_blocks import Page, blocks, check, matches

ROOT = Path(__file__).parents[2]


def page(tmp_path, text):
    path = tmp_path / "page.md"
    path.write_text(text)
    return path


def run(tmp_path, text):
    Page(page(tmp_path, text), tmp_path, tmp_path, in_process=True).run()


def test_blocks_have_a_language_a_title_and_needs(tmp_path):
    text = '```python title="a.py"\nx = 1\n```\n\n<!-- needs: a GPU -->\n```sh\naotc doctor\n```\n'
    found = blocks(page(tmp_path, text))
    assert [(each.language, each.title, each.needs, each.line) for each in found] == [
        ("python", "a.py", "", 1),
        ("sh", "", "a GPU", 6),
    ]


def test_files_commands_and_python_share_a_folder(tmp_path):
    run(tmp_path, '```python title="a.py"\nprint(6 * 7)\n```\n```sh\npython a.py\n```\n')
    run(tmp_path, "```sh\nx=2\necho $x > b\n```\n```sh\necho $x\n```\n```text\n2\n```\n")
    run(tmp_path, "```python\nx = open('b').read()\n```\n```python\nassert x == '2\\n'\n```\n")


@pytest.mark.parametrize(
    "text",
    [
        "```sh\nfalse\ntrue\n```\n",
        "```sh\necho a\n```\n```text\nb\n```\n",
        "```python\nassert False\n```\n",
        "```sh\naotc inspect absent\n```\n",
        "<!-- needs: a GPU -->\n```sh\naotc build a.py --no-such-option\n```\n",
        "<!-- needs: a GPU -->\n```sh\naotc no-such-command\n```\n",
        "<!-- needs: a GPU -->\n```python\nfrom aotc.aot import NoSuchName\n```\n",
    ],
)
def test_what_is_wrong_fails(tmp_path, text):
    with pytest.raises(AssertionError):
        run(tmp_path, text)


def test_names_of_a_block_that_is_not_run_are_checked(tmp_path):
    text = "<!-- needs: docker -->\n```dockerfile\nRUN /opt/bin/aotc warm a.py --shared\n```\n"
    check(blocks(page(tmp_path, text))[0])


@pytest.mark.parametrize(
    ("expected", "output", "is_equal"),
    [
        ("took 3.1 s, 14 kB", "took 12 ms, 3,001.5 MB", True),
        ("a\n…\nd", "a\nb\nc\nd", True),
        ("a\n…", "a", True),
        ("a\n…\nd", "a\nb\nc", False),
        ("sha256:" + "ab" * 32, "sha256:" + "01" * 32, True),
        ("ok", "not ok", False),
    ],
)
def test_outputs_may_differ_in_numbers_and_left_out_lines(expected, output, is_equal):
    assert matches(expected, output) == is_equal


PAGES = sorted(
    path
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("runtime/*.md")]
    if path.name not in ("CHANGELOG.md", "python-api.md")  # the second has signatures
)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_commands_options_and_names_of_every_page_exist(path):
    """Of pages whose blocks are run, too: some need what this machine may lack."""
    for block in blocks(path):
        check(block)
