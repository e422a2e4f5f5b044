"""Command lines that work, one for each command, and the folder in which they do; each in a fork
of a process that has imported torch, so that hundreds of them take no hundred imports.

`python working.py` serves: a JSON line with what `run_forked` takes, answered by one with the exit
code. It obeys file permissions where `unprivileged` started it.
"""

import contextlib
import importlib
import json
import os
import pkgutil
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
LIMIT_S = 60  # one command
COMMA = """LC_NUMERIC
decimal_point ","
thousands_sep "."
grouping 3;3
END LC_NUMERIC
LC_CTYPE
copy "POSIX"
END LC_CTYPE
"""
NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.größe = torch.nn.Linear(16, 24)

    def forward(self, x):
        return torch.nn.functional.gelu(self.größe(x)).softmax(-1)

def build_model():
    return Net()

example_inputs = (torch.randn(4, 16),)
"""
FAILS = """
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(x + 1).sort(-1).values.nonzero()

model, example_inputs = Net(), (torch.randn(4, 16),)
"""
# Command → words with which it ends well. `reduce` needs a model that fails.
WORDS = {
    "build": ("net.py", "-o", "out", "--jobs", "1", "--log", "log.json"),
    "init": ("class.py:Net", "-o", "made.py"),
    "inspect": ("good", "--kernels"),
    "report": ("good", "-o", "page.html"),
    "diff": ("good", "good"),
    "stubs": ("good", "-o", "made.py"),
    "tune": ("good", "-o", "out", "--jobs", "1", "--tune-budget", "2"),
    "measure": ("tasks", "-o", "results"),
    "run": ("good", "--output", "output_0=@y.npy"),
    "verify": ("good",),
    "sign": ("good", "--key", "key.pem", "-o", "signed.json"),
    "push": ("good", "oci-layout:layout2:v2"),
    "pull": ("oci-layout:layout:v1", "-o", "out"),
    "sbom": ("good", "-o", "sbom.json"),
    "keygen": ("fresh",),
    "bench": ("good", "--rounds", "1", "--seconds", "0.05", "--plot", "plot.svg"),
    "profile": ("good", "--repetitions", "1", "--trace", "trace.json"),
    "warm": ("net.py", "--jobs", "1"),
    "reduce": ("fails.py", "-o", "left.py", "--tries", "2"),
    "backends check": ("file.txt",),
    "backends include-dir": (),
    "backends ls": (),
    "backends new": ("fresh",),
    "doctor": (),
    "explain": (),
    "completion": ("bash",),
    "cache export": ("archive.tar",),
    "cache import": ("kept.tar",),
    "cache prune": ("--max-size", "1GB"),
    **{f"cache {name}": () for name in ("clear", "dir", "explain", "gc", "ls", "size", "verify")},
}
NEGATIVE = {"backends check": 1}  # what a text is as a library
WITH_TORCH = ("build", "init", "warm", "reduce")  # they import it
MADE = (
    "out", "made.py", "page.html", "results", "y.npy", "signed.json", "layout2", "sbom.json",
    "fresh", "fresh.pem", "fresh.pub.pem", "plot.svg", "trace.json", "left.py", "left.pt",
    "archive.tar", "log.json",
)  # fmt: skip


def fill(area, bundle, cache, run):
    """Put what the command lines name into the folder; `run` runs one."""
    from aotc.aot.measure.processor import device_name

    (area / "tmp").mkdir()
    shutil.copytree(bundle, area / "good")
    (area / "net.py").write_text(NET)
    (area / "class.py").write_text(NET.partition("def build_model")[0])
    (area / "fails.py").write_text(FAILS)
    (area / "file.txt").write_text("text\n")
    for words in (
        ("keygen", f"{area}/key"),
        ("push", bundle, f"oci-layout:{area}/layout:v1"),
        ("cache", "export", f"{area}/kept.tar", "--cache-dir", cache),
        ("tune", bundle, "--tasks-to", f"{area}/tasks", "--on", device_name()),
    ):
        run([str(word) for word in words])
    (area / "tasks").mkdir(exist_ok=True)


def clear(area):
    """Delete what commands made there."""
    for path in map(area.joinpath, MADE):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


class Server:
    """The process that forks, as a context manager."""

    def __init__(self, start=subprocess.Popen):
        threads = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        self.process = start(
            [sys.executable, str(HERE / "working.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **dict.fromkeys(threads, "1")},
            text=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()

    def run(self, words, folder, **given):
        """Exit code, standard output, standard error, and how many processes stayed."""
        asked = {"words": list(map(str, words)), "folder": str(folder), **given}
        print(json.dumps(asked), file=self.process.stdin, flush=True)
        answer = json.loads(self.process.stdout.readline())
        out, errors = (Path(folder, "tmp", name).read_text(errors="replace") for name in "oe")
        return answer["code"], out, errors, answer["stayed"]


def serve():
    """Import what commands import, then fork one for each line of the standard input."""
    import aotc.aot

    for name in ("torch", "torch.export", "torch._dynamo", "torch.fx.experimental.proxy_tensor"):
        importlib.import_module(name)
    for module in pkgutil.walk_packages(aotc.aot.__path__, "aotc.aot."):
        if not module.name.endswith(("__main__", ".contender", ".worker")):
            with contextlib.suppress(Exception):
                importlib.import_module(module.name)
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        print(json.dumps(_start(json.loads(line))), file=replies, flush=True)


def _start(given):
    child = os.fork()
    if not child:
        try:
            run_forked(**given)
        except BaseException as fault:  # the harness's own
            Path(given["folder"], "tmp", "e").write_text(repr(fault))
        finally:
            os._exit(99)
    deadline_s = time.monotonic() + LIMIT_S
    ended = 0
    while not ended and time.monotonic() < deadline_s:
        ended, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.002)
    code = os.waitstatus_to_exitcode(status) if ended else "late"
    stayed = _members(child)
    while stayed and time.monotonic() < deadline_s - LIMIT_S + 20 and code != "late":
        time.sleep(0.01)
        stayed = _members(child)
        if time.monotonic() > deadline_s - LIMIT_S / 2:
            break
    for each in stayed:
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
    if not ended:
        os.waitpid(child, 0)
    return {"code": code, "stayed": len(stayed)}


def _members(session):
    """The processes of a session."""
    found = []
    for path in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            rest = (
                (path / "stat").read_text().rpartition(")")[2].split()
                if path.name.isdigit()
                else []
            )
            if rest and int(rest[3]) == session and rest[0] != "Z":
                found.append(int(path.name))
    return found


def run_forked(
    words,
    folder,
    environment=(),
    unset=(),
    hooks=(),
    at=None,
    number=0,
    to_group=False,
    swallows=False,
):
    """In the child: `aotc WORDS…` in the folder, after the functions of HOOKS. Signal `number` is
    sent at the point `at`: the n-th call of a Python function, `["call", n]`, or of the one that is
    named; it is caught there if `swallows`."""
    os.setsid()
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # some start the tests with nohup
        signal.signal(each, signal.SIG_DFL)
    temporary = Path(folder, "tmp")
    os.environ.update({"TMPDIR": str(temporary), "HOME": str(folder), **dict(environment)})
    os.environ["AOTC_CACHE_DIR"] = os.environ.get("AOTC_CACHE_DIR", f"{folder}/cache")
    for name in unset:
        os.environ.pop(name, None)
    tempfile.tempdir = None
    for descriptor, name in ((1, "o"), (2, "e")):
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        os.dup2(os.open(temporary / name, flags, 0o666), descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(folder)
    for name in hooks:
        HOOKS[name](Path(folder))
    for descriptor, name in ((0, "stdin"), (1, "stdout"), (2, "stderr")):
        with contextlib.suppress(OSError):
            os.fstat(descriptor)
            mode, encoding = "w" if descriptor else "r", "ascii" if "ascii" in hooks else "utf-8"
            stream = open(descriptor, mode, encoding=encoding, closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
    sys.argv = ["aotc", *words]
    from aotc.aot import cli

    def send():
        with contextlib.suppress(KeyboardInterrupt) if swallows else contextlib.nullcontext():
            (os.killpg if to_group else os.kill)(os.getpgrp() if to_group else os.getpid(), number)

    if at is not None:
        _arm(*at, send)
    cli.main()


def _stream(number, path, flags):
    def hook(folder):
        os.dup2(os.open(path, flags), number)

    return hook


def _closed(number):
    def hook(folder):
        os.close(number)
        setattr(sys, ("stdin", "stdout", "stderr")[number], None)

    return hook


def _without_reader(*numbers):
    def hook(folder):
        end, start = os.pipe()
        os.close(end)
        for number in numbers:
            os.dup2(start, number)

    return hook


def _nobody(folder):
    """As in containers whose user has a number and no name."""
    import pwd

    def no_name(number):
        raise KeyError(f"getpwuid(): uid not found: {number}")

    pwd.getpwuid = no_name


def _nowhere(folder):
    gone = Path(folder, "gone")
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()


def _full(folder):
    sys.path[:0] = [str(HERE.parent), str(HERE.parent / "pack"), str(HERE.parent / "runtime")]
    from robustness.disk import Full, mount

    (folder / "full").mkdir(exist_ok=True)
    mount(folder / "full")
    Full(folder / "full", 0).__enter__()


def _comma(folder):
    import locale

    locale.setlocale(locale.LC_NUMERIC, "comma.UTF-8")


HOOKS = {
    "stdin closed": _closed(0),
    "stdout closed": _closed(1),
    "stderr closed": _closed(2),
    "stdout full": _stream(1, "/dev/full", os.O_WRONLY),
    "stderr full": _stream(2, "/dev/full", os.O_WRONLY),
    "stdout without a reader": _without_reader(1),
    "both without a reader": _without_reader(1, 2),
    "ascii": lambda folder: None,  # of the streams
    "nobody": _nobody,
    "cwd deleted": _nowhere,
    "umask": lambda folder: os.umask(0o077),
    "full": _full,
    "comma": _comma,
}


def _arm(where, count, send):
    left = [count]
    if where == "count":  # how many calls there are
        end = os._exit

        def ending(code):
            sys.setprofile(None)
            Path(os.environ["TMPDIR"], "calls").write_text(str(-left[0]))
            end(code)

        os._exit = ending
    if where in ("call", "count"):

        def profile(frame, event, argument):
            if event == "call":
                left[0] -= 1
                if left[0] == 0:
                    send()

        from aotc.aot.cli import signals

        catch = signals.catch

        def caught():
            catch()
            sys.setprofile(profile)

        signals.catch = caught
        return
    module, _, path = where.partition(":")
    owner, _, name = path.rpartition(".")
    place = importlib.import_module(module)
    for part in filter(None, owner.split(".")):
        place = getattr(place, part)
    original = getattr(place, name)

    def replaced(*arguments, **options):
        left[0] -= 1
        if left[0] == 0:
            send()
        return original(*arguments, **options)

    setattr(place, name, replaced)


if __name__ == "__main__":
    serve()
