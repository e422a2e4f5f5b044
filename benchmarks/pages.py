"""How large the pages of `aotc report` are, how long it takes to write one, and to open it.

    python -m benchmarks.pages BUNDLE…

A page is opened from a file by a headless Chromium, three times; the median is until it is loaded
and drawn. Exits with 1 where a page is larger or slower than the limits below.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

from aotc.aot.facts.bundle_facts import read_facts, variants
from aotc.aot.report.report import report
from benchmarks.browser import Browser, found

LIMIT_BYTES, LIMIT_S = 5_000_000, 2.0
OPENED = 3


def main(names: list[str]) -> int:
    """Print a row a bundle; the exit code."""
    program = found()
    print(
        "| bundle | steps | page MB | written s | opened s |\n| --- | ---: | ---: | ---: | ---: |"
    )
    is_within = True
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = Browser(program, Path(folder) / "profile") if program else None
        for name in names:
            began_s = time.perf_counter()
            facts = read_facts(Path(name))
            text = report(facts)
            written_s = time.perf_counter() - began_s
            page = Path(folder) / "report.html"
            nbytes = page.write_bytes(text.encode())
            opened_s = 0.0
            if browser is not None:
                opened_s = statistics.median(browser.open(page.as_uri()) for _ in range(OPENED))
            steps = sum(len(each.plan.steps) for each in variants(facts))
            opened = f"{opened_s:.2f}" if browser is not None else "no Chromium"
            print(f"| {name} | {steps} | {nbytes / 1e6:.2f} | {written_s:.2f} | {opened} |")
            is_within &= nbytes <= LIMIT_BYTES and opened_s <= LIMIT_S
        if browser is not None:
            browser.close()
    return 0 if is_within else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
