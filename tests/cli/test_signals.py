"""Every command, ended by a signal wherever it is: exit code 128 + the signal's number, one line,
and nothing left: no file half-written, no temporary folder, no process, no damage in the cache."""

import json
import os
import signal
import subprocess
import sys

import pytest
import working

from aotc.aot.cli.program import COMMANDS
from aotc.aot.cli.signals import WORDS
from aotc.runtime.verify import verify

# Points of a build, by the function that is about to run and how often it did before.
BUILD_POINTS = {
    **{f"begin {n}": ("aotc.aot.cli.progress:Lines.begin", n) for n in range(1, 10, 2)},
    "compile": ("aotc.aot.tasks.workers:_Worker.begin", 1),
    "wait": ("aotc.aot.tasks.workers:_ready", 1),
    "cache": ("aotc.cache.store:_write", 2),
    "golden": ("aotc.aot.validation:validate", 1),
    "write": ("aotc.aot.pack.staging:Staging.write", 3),
    "publish": ("aotc.aot.pack.staging:Staging.publish", 1),
}
FRACTION = 0.6  # of a command's calls
SIGNALS = (signal.SIGINT, signal.SIGTERM)
LIGHT = [name for name in working.WORDS if name not in ("build", "tune", "warm", "reduce")]


def files_of(area):
    """What lies in the folder, but for the cache and what the harness writes."""
    return {
        str(path.relative_to(area))
        for path in area.rglob("*")
        if not {"cache", "__pycache__"} & set(path.relative_to(area).parts)
        and path.parent != area / "tmp"
    }


def wrong(area, answer, number, before):
    """What is wrong with how a command ended."""
    code, _, errors, stayed = answer
    said = [line for line in errors.splitlines() if "Traceback" in line or "ignored" in line]
    if code != 128 + number or said:
        return f"exit {code}: {errors[-1500:]}"
    lines = [line for line in errors.splitlines() if line.startswith("error:")]
    if lines != [f"error: {WORDS[number]}"] or not errors.endswith(lines[0] + "\n"):
        return f"said {errors[-300:]!r}"
    if stayed:
        return f"{stayed} processes stay"
    left = files_of(area) - before
    folders = [str(path) for path in (area / "tmp").glob(f"aotc-{os.geteuid()}/*") if path.is_dir()]
    staging = [str(path) for path in (area / "cache").glob("staging/*")]
    left -= {path for path in left if is_whole(area, path)}
    return f"left {sorted(left)}" * bool(left) + f" {folders} {staging}" * bool(folders or staging)


def is_whole(area, path):
    """Whether the command had finished this file, or the bundle that it is in."""
    first = path.partition("/")[0]
    if first == "out":
        return all(each.status != "failed" for each in verify(area / "out").findings)
    if first.endswith(".json"):
        json.loads((area / path).read_bytes())
    is_file = first in working.MADE and (area / path).is_file()
    goes_on = first.startswith((".out.partial-", "layout2"))  # what the next call goes on with
    if first == "fresh":  # of `backends new`, whole when the signal came
        return len(list((area / first).iterdir())) >= 4
    return goes_on or (is_file and (area / path).stat().st_size > 0)


def ended(server, area, words, number, at, **given):
    working.clear(area)
    before = files_of(area)
    answer = server.run(words, area, number=number, at=at, **given)
    problem = wrong(area, answer, number, before)
    working.clear(area)
    return problem


def calls_of(server, area, words):
    """How many Python functions the command calls, and how it ends by itself."""
    for _ in range(2):  # the first fills the cache
        working.clear(area)
        answer = server.run(words, area, at=("count", 0))
    working.clear(area)
    return int((area / "tmp" / "calls").read_text()), answer


def test_every_command_stands_in_the_table():
    assert {name.split()[0] for name in working.WORDS} == set(COMMANDS)


@pytest.mark.parametrize("point", BUILD_POINTS)
def test_a_build_that_is_ended_leaves_nothing(server, area, point):
    number = SIGNALS[list(BUILD_POINTS).index(point) % 2]
    words = ["build", *working.WORDS["build"], "--cache-dir", str(area / f"cache/{point}")]
    options = {"to_group": number == signal.SIGINT}
    assert not ended(server, area, words, number, BUILD_POINTS[point], **options)


@pytest.mark.parametrize("name", LIGHT)
def test_a_command_that_is_ended_leaves_nothing(server, area, name):
    words = [*name.split(), *working.WORDS[name]]
    total, answer = calls_of(server, area, words)
    assert answer[0] == working.NEGATIVE.get(name, 0), answer
    number = SIGNALS[LIGHT.index(name) % 2]
    assert not ended(server, area, words, number, ("call", max(1, int(total * FRACTION))))


@pytest.mark.nightly
@pytest.mark.parametrize("name", working.WORDS)
@pytest.mark.parametrize("number", SIGNALS)
def test_a_command_may_be_ended_at_any_call(server, area, name, number):
    words = [*name.split(), *working.WORDS[name]]
    total, answer = calls_of(server, area, words)
    assert answer[0] == working.NEGATIVE.get(name, 0), answer
    found = {}
    for place in range(1, 20):
        at = ("call", max(1, total * place // 24))  # measurements vary in their number of calls
        found[place] = ended(server, area, words, number, at, to_group=place % 2 == 1)
    assert not any(found.values()), found


def test_json_names_the_signal(server, area):
    answer = server.run(
        ["verify", "good", "--json"], area, number=signal.SIGTERM,
        at=("aotc.aot.cli.verify:print_json", 1),
    )  # fmt: skip
    assert answer[0] == 143
    assert json.loads(answer[1])["code"] == "terminated"


STUCK = """
import os, signal, sys, threading, time
from aotc.aot.cli import signals

signals.LIMIT_S = 0.3
signals.catch()
try:
    signal.raise_signal(signal.SIGTERM)
except KeyboardInterrupt:
    threading.Lock().acquire() and print("unwinding", flush=True)
    threading.Event().wait()
"""


def test_what_waits_without_end_is_ended():
    ran = subprocess.run(
        [sys.executable, "-c", STUCK], capture_output=True, text=True, check=False, timeout=30
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (143, "unwinding\n", "error: terminated\n")


def test_a_signal_that_was_caught_still_ends_the_command(server, area):
    """As in a callback of C, or where a library catches everything."""
    words = ["verify", "good"]
    at = ("aotc.aot.cli.verify:print_json", 1)
    answer = server.run([*words, "--json"], area, number=signal.SIGINT, at=at, swallows=True)
    assert answer[0] == 130
    assert answer[2].endswith("error: interrupted\n")
