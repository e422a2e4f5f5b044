"""Inductor's own tests on the CPU with `backend="aotc"` in its place.

    python -m benchmarks.inductor_tests PATH/test_torchinductor.py [-o docs/inductor-tests.md]

PATH is the file of torch's source tree; it is not part of this project. Each test runs as it is
written, but that what it compiles goes to the back end, and that its checks of Inductor's kernels,
counters and code are taken out (`benchmarks/inductor_source.py`). A test that fails with
`aot_eager` too is none of compilers' (it belongs to another version of torch, or to another device)
and does not apply, nor does one that gives the back end no graph. A region that our back end left
to Inductor is counted. `--dynamic` takes all sizes to vary from the first call on.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Queue

import torch

from benchmarks.inductor_worker import NEAR, OURS, Outcome, Worker, said

CONTROL = "aot_eager"
OUTCOMES = {
    "passed": "passed, all of it ours",
    "left": "passed, with regions that went to Inductor",
    "sums": "passed but for the order of sums: within 1e-6 of the scale of f64's result,"
    " or that much farther from it than eager is",
    "wrong": "other numbers than expected",
    "failed": "failed otherwise",
    "slow": "took longer than the limit",
    "other": "does not apply: fails with `aot_eager` too, or is skipped by torch",
    "own": "does not apply: gives the back end no graph",
}
Ask = Callable[[str], Outcome]


@dataclass(frozen=True)
class Result:
    name: str
    outcome: str
    reason: str = ""
    regions_left: int = 0
    dropped_checks: int = 0


def judge(name: str, ask: Ask, dropped_checks: int = 0) -> Result:
    """What a test shows; `ask` runs it by a mode: ours, the control, ours by scale."""
    ours = ask(OURS)

    def result(outcome: str, reason: str = ours.reason) -> Result:
        return Result(name, outcome, said(reason), ours.regions_left, dropped_checks)

    if ours.kind == "skipped":
        return result("other")
    if ours.kind == "passed" and ours.graphs == 0:
        return result("own")
    if ours.kind == "passed":
        return result("left" if ours.regions_left else "passed")
    control = ask(CONTROL)
    if control.kind != "passed":
        return result("other", control.reason)
    if control.graphs == 0:
        return result("own")
    if ours.kind == "wrong" and ask(NEAR).kind == "passed":
        return result("sums")
    return result(ours.kind)


def page(results: list[Result], source: str, is_dynamic: bool = False) -> str:
    """The page of all results, in Markdown."""
    title, option = (", with sizes that vary", " --dynamic") if is_dynamic else ("", "")
    counts = Counter(row.outcome for row in results)
    good = sum(counts[name] for name in ("passed", "left", "sums"))
    applies = good + sum(counts[name] for name in ("wrong", "failed", "slow"))
    regions = sum(row.regions_left for row in results)
    cleared = sum(row.dropped_checks > 0 for row in results)
    lines = [
        f"# Inductor's own tests{title}",
        "",
        f"Written on {datetime.date.today()} by `python -m benchmarks.inductor_tests{option}`;"
        f" torch {torch.__version__}, {source}.",
        "",
        f"Of {len(results)} tests {applies} apply; {good} of these passed"
        f" ({100 * good / max(applies, 1):.1f} %),"
        f" {good - counts['left']} of them without Inductor."
        f" {regions} regions went to Inductor. From {cleared} tests checks of Inductor's kernels,"
        " counters or code were taken out; what they compute is judged as in all others.",
        "",
        "| outcome | tests |",
        "| --- | --- |",
        *(f"| {text} | {counts[name]} |" for name, text in OUTCOMES.items()),
        "",
    ]
    for name in ("wrong", "failed", "slow", "sums", "left", "own", "other"):
        rows = [row for row in results if row.outcome == name]
        if rows:
            lines += [f"## {OUTCOMES[name][0].upper()}{OUTCOMES[name][1:]}", ""]
            lines += [_line(row) for row in rows] + [""]
    return "\n".join(lines).rstrip() + "\n"


def _line(row: Result) -> str:
    note = said(row.reason).replace("|", "/").replace("`", "'")
    if row.outcome == "left":
        note = f"{row.regions_left} regions; {note}"
    return f"- `{row.name}`{': ' if note else ''}{note}"


class Jobs:
    """Processes that share the tests: each job has one for our back end and one for the control."""

    def __init__(self, path: Path, jobs: int, limit_s: int, is_dynamic: bool = False) -> None:
        self._limit_s = limit_s
        self._jobs = jobs
        self._pairs = [(Worker(path, is_dynamic), Worker(path, is_dynamic)) for _ in range(jobs)]
        first = self._pairs[0][0]
        first.start()
        self.names, self._dropped = first.names, first.dropped_checks

    def judge_all(self, names: list[str], take: Callable[[Result], None]) -> None:
        """Judge tests; `take` gets each result in the order in which they end."""
        waiting: Queue[tuple[Worker, Worker]] = Queue()
        results: Queue[Result | BaseException] = Queue()
        for pair in self._pairs:
            waiting.put(pair)

        def ask(name: str, ours: Worker, other: Worker) -> Ask:
            return lambda mode: (other if mode == CONTROL else ours).run(name, mode, self._limit_s)

        def one(name: str) -> None:
            ours, other = waiting.get()
            try:
                results.put(judge(name, ask(name, ours, other), self._dropped_of(name)))
            except BaseException as error:
                results.put(error)
            finally:
                waiting.put((ours, other))

        with ThreadPoolExecutor(self._jobs) as pool:
            for name in names:
                pool.submit(one, name)
            for _ in names:
                result = results.get()
                if isinstance(result, BaseException):
                    pool.shutdown(cancel_futures=True)
                    raise result
                take(result)

    def _dropped_of(self, name: str) -> int:
        """Checks taken out of a test; a parametrised one's name goes on after its function's."""
        found = [each for each in self._dropped if name == each or name.startswith(each + "_")]
        return self._dropped[max(found, key=len)] if found else 0

    def close(self) -> None:
        """End all processes."""
        for pair in self._pairs:
            for worker in pair:
                worker.stop()


def _known(journal: Path | None) -> dict[str, Result]:
    if journal is None or not journal.exists():
        return {}
    rows = (json.loads(line) for line in journal.read_text().splitlines())
    return {row["name"]: Result(**row) for row in rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/inductor-tests.md"))
    parser.add_argument("--journal", type=Path, default=None, help="results so far, to go on from")
    parser.add_argument("--only", default="", help="parts of names, with commas between")
    parser.add_argument("--jobs", type=int, default=1, help="tests that run at a time")
    parser.add_argument("--seconds", type=int, default=60, help="limit of one test")
    parser.add_argument(
        "--source", default="its own test file", help="what the file is, for the page"
    )
    parser.add_argument("--dynamic", action="store_true", help="all sizes are taken to vary")
    given = parser.parse_args()
    jobs = Jobs(given.path, given.jobs, given.seconds, given.dynamic)
    parts = given.only.split(",")
    names = [name for name in jobs.names if any(part in name for part in parts)]
    known = _known(given.journal)

    def take(result: Result) -> None:
        known[result.name] = result
        print(result.outcome, result.name, result.reason[:100], flush=True)
        if given.journal is not None:
            with given.journal.open("a") as journal:
                journal.write(json.dumps(asdict(result)) + os.linesep)

    try:
        jobs.judge_all([name for name in names if name not in known], take)
    finally:
        jobs.close()
    results = [known[name] for name in names if name in known]
    given.output.write_text(page(results, given.source, given.dynamic))


if __name__ == "__main__":
    main()
