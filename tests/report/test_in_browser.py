"""The page in a headless Chromium: no message on its console, folded parts, sorting, keyboard."""

import pytest
from test_report import hostile_contents

from aotc.aot.facts.bundle_facts import read_facts
from aotc.aot.pack import pack
from aotc.aot.report.report import report
from benchmarks import browser

pytestmark = pytest.mark.skipif(browser.found() is None, reason="no Chromium on this machine")


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    started = browser.Browser(browser.found(), tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


@pytest.fixture(scope="module")
def page(bundle, tmp_path_factory):
    out = tmp_path_factory.mktemp("page") / "report.html"
    out.write_text(report(read_facts(bundle)), encoding="utf-8")
    return out.as_uri()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1600])
def test_it_is_readable_at_any_width(shown, page, width, scheme, tmp_path):
    shown.messages.clear()
    shown.open(page, width, 900, scheme)
    shown.picture(tmp_path / "page.png", is_whole=True)
    assert (tmp_path / "page.png").stat().st_size > 10_000
    assert shown.value("document.documentElement.scrollWidth") <= width
    colours = shown.value("[getComputedStyle(document.body).color,"
                          " getComputedStyle(document.body).backgroundColor]")  # fmt: skip
    assert contrast(*colours) > 7
    muted = shown.value("getComputedStyle(document.querySelector('.muted')).color")
    assert contrast(muted, colours[1]) > 4.5
    assert shown.messages == []


def contrast(one, other):
    """Of two colours `rgb(1, 2, 3)`, as the accessibility guidelines define it."""

    def light(text):
        parts = [int(each) / 255 for each in text[4:-1].split(",")[:3]]
        red, green, blue = (
            each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


def test_a_link_into_a_folded_part_unfolds_it(shown, page):
    shown.open(page + "#target-0-step-1")
    assert shown.value("document.getElementById('target-0-step-1').open")
    assert not shown.value("document.getElementById('target-0-step-0').open")
    shown.value("document.querySelector('#target-0-graph a').dispatchEvent("
                "new MouseEvent('click', {bubbles: true, cancelable: true}))")  # fmt: skip
    assert shown.value("new Promise(done => setTimeout(() => done(document.getElementById("
                       "'target-0-step-0').open), 100))")  # fmt: skip


def test_tables_sort_by_the_keyboard(shown, page):
    shown.open(page)
    names = "[...document.querySelectorAll('#target-0-kernels tr')].map(r => r.cells[0].innerText)"
    before = shown.value(names)
    shown.value("document.querySelector('#target-0-kernels').closest('table')"
                ".querySelectorAll('th button')[0].focus()")  # fmt: skip
    shown.key("Enter", 13)
    assert shown.value(names) == sorted(before, reverse=True)
    shown.key("Enter", 13)
    assert shown.value(names) == sorted(before)


def test_steps_are_found_by_a_word(shown, page):
    shown.open(page)
    shown.value("{ const field = document.querySelector('input[type=search]');"
                " field.value = 'SOFTMAX'; field.dispatchEvent(new Event('input')); }")  # fmt: skip
    visible = "[...document.querySelectorAll('#target-0-steps > *')].filter(e => !e.hidden).length"
    assert shown.value(visible) == 1
    assert shown.value("document.getElementById('target-0-count').textContent") == "1 shown"


def test_the_size_of_the_graph_changes(shown, page):
    shown.open(page)
    width = "document.querySelector('#target-0-graph svg').getBoundingClientRect().width"
    whole = shown.value(width)
    shown.value("{ const choice = document.querySelector('select[data-picture]');"
                " choice.value = '0.5'; choice.dispatchEvent(new Event('change')); }")  # fmt: skip
    assert shown.value(width) == pytest.approx(whole / 2, rel=0.01)


def test_a_hostile_bundle_runs_nothing(shown, tmp_path):
    pack(hostile_contents(), tmp_path / "hostile")
    out = tmp_path / "report.html"
    out.write_text(report(read_facts(tmp_path / "hostile")), encoding="utf-8")
    shown.messages.clear()
    shown.open(out.as_uri())
    assert shown.value("document.scripts.length") == 1
    assert shown.value("document.images.length") == 0
    assert "onerror" in shown.value("document.body.innerText")
    assert shown.messages == []
