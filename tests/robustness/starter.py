"""A process without threads that forks builds: their time is spent in stages, not in imports.

A fork has only the thread that called it. Where another thread of the parent is a member of a pool
(OpenMP's, after one product by torch), the child waits for it without end. So builds are forked
from a process that has imported what a build imports, with one thread for each numerical library,
and has computed nothing; it looks at the number of its threads before each fork.

`Starter` is the caller's side. The process is `python -m robustness.starter SPEC FOLDER`.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from .spread import kill_group, threads

BUILD_S = 300.0  # after which a build that nobody kills counts as one without an end
GRACE_S = 30.0
ONE_THREAD = {
    f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "VECLIB_MAXIMUM")
}
NAMES = """
import sys
from aotc.aot.cli.program import run
if run(["build", *sys.argv[1:], "--quiet", "--jobs", "1"]):
    raise SystemExit(1)
print("modules", *sys.modules)
"""


class NoEnd(Exception):
    """A build, or the process that starts builds, did not end in its time."""


class Starter:
    """The process, as a context manager."""

    def __init__(self, spec: Path, folder: Path) -> None:
        """Start it: it makes one build of `spec` below `folder` to find out what builds import."""
        self._log = (folder / "starter").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "robustness.starter", str(spec), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, **ONE_THREAD, "TMPDIR": str(folder)},
            start_new_session=True,
        )
        try:
            self._answer(BUILD_S)
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def build(self, words: list[str], folder: Path, after_s: float | None) -> dict[str, Any]:
        """Run `aotc build WORDS…` and kill it after so many seconds, if at all.

        Temporary files and `log` are put below `folder`. Returns `code`, negative for a signal;
        `seconds`; `leader`, of the group in which its workers are. Raises `NoEnd`.
        """
        asked = {"words": words, "folder": str(folder), "after_s": after_s}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        self._process.stdin.flush()
        return self._answer(BUILD_S if after_s is None else after_s)

    def _answer(self, seconds: float) -> dict[str, Any]:
        """The next line, which is due in these seconds."""
        assert self._process.stdout is not None
        ready = select.select([self._process.stdout], [], [], seconds + GRACE_S)[0]
        line = self._process.stdout.readline() if ready else b""
        if not line:
            said = Path(self._log.name).read_text(errors="replace")[-1000:]
            raise NoEnd(f"no answer within {seconds + GRACE_S:.0f} s: {said}")
        answer: dict[str, Any] = json.loads(line)
        if answer.get("is_late"):
            raise NoEnd(f"no end within {seconds:.0f} s")
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: object, trace: TracebackType | None
    ) -> None:
        kill_group(self._process.pid)
        self._process.wait(GRACE_S)
        self._log.close()


def main() -> None:
    """Import what a build imports; then fork a build for each line of the standard input."""
    spec, folder = sys.argv[1:]
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        words = [spec, "-o", f"{name}/out", "--cache-dir", f"{name}/cache"]
        command = [sys.executable, "-c", NAMES, *words]
        ran = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, check=True, timeout=BUILD_S
        )
    listed = next(line for line in ran.stdout.splitlines() if line.startswith("modules "))
    for name in listed.split()[1:]:
        if name != "__main__":
            with contextlib.suppress(Exception):  # modules that are made, not imported
                importlib.import_module(name)
    print(json.dumps({"modules": len(sys.modules)}), file=replies, flush=True)
    for line in sys.stdin:
        print(json.dumps(_start(json.loads(line))), file=replies, flush=True)


def _start(asked: dict[str, Any]) -> dict[str, Any]:
    """One build, from its fork to its end."""
    if threads() > 1:
        raise RuntimeError(f"{threads()} threads, expected one: a fork would not have the others")
    started_s, after_s = time.monotonic(), asked["after_s"]
    child = os.fork()
    if not child:
        _build(asked["words"], Path(asked["folder"]))
    handle = os.pidfd_open(child)
    try:
        seconds = BUILD_S if after_s is None else after_s
        has_ended = bool(select.select([handle, 0], [], [], seconds)[0])
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        os.close(handle)
    seconds = time.monotonic() - started_s
    is_late = after_s is None and not has_ended
    if is_late:
        kill_group(child)
    return {"code": code, "seconds": seconds, "leader": child, "is_late": is_late}


def _build(words: list[str], folder: Path) -> None:
    """In the child: the build, as the leader of a group."""
    code = 1
    try:
        os.setsid()
        temporary = folder / "tmp"
        temporary.mkdir(exist_ok=True)
        os.environ["TMPDIR"], tempfile.tempdir = str(temporary), None
        log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        for number in (1, 2):
            os.dup2(log, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        from aotc.aot.cli.program import run

        code = run(["build", *words])
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
