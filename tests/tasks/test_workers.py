"""Worker processes: order, progress, typed errors, and what a worker's death costs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aotc.aot.errors import KernelFailed
from aotc.aot.targets.toolchain import CodeGenerationError, ToolchainError
from aotc.aot.tasks.task import Request, keep_text
from aotc.aot.tasks.workers import Workers

COMPILE = "aotc.aot.targets.toolchain:compile_object"
GOOD = "define void @body(ptr %a, i32 %x, i32 %y, i32 %z, ptr %g, ptr %s) {\n  ret void\n}\n"


@pytest.fixture
def workers(tmp_path, monkeypatch):
    folder = Path(__file__).parents[1] / "targets_cpu"
    monkeypatch.syspath_prepend(str(folder))  # workers get this process's path
    with Workers(2, keep=tmp_path / "kept") as pool:
        yield pool


def _requests(*calls):
    return [Request(f"kernel {n}", name, arguments) for n, (name, *arguments) in enumerate(calls)]


def test_outcomes_keep_the_order(workers: Workers) -> None:
    seen = []
    calls = [("operator:mul", n, "ab") for n in range(7)]
    outcomes = workers.map(_requests(*calls), seen.append)
    assert [outcome.unwrap() for outcome in outcomes] == ["ab" * n for n in range(7)]
    assert sorted(o.request.name for o in seen) == sorted(o.request.name for o in outcomes)


def test_processes_are_used_again_and_few(workers: Workers) -> None:
    first = {outcome.unwrap() for outcome in workers.map(_requests(*[("os:getpid",)] * 6))}
    second = {outcome.unwrap() for outcome in workers.map(_requests(*[("os:getpid",)] * 6))}
    assert first | second == first
    assert len(first) <= 2
    assert os.getpid() not in first


def test_a_death_costs_one_kernel(workers: Workers) -> None:
    calls = [("operator:add", 1, 2), ("os:abort",), ("os:_exit", 3)] + [("operator:add", 3, 4)] * 4
    outcomes = workers.map(_requests(*calls))
    assert [o.value for o in outcomes] == [3, None, None, 7, 7, 7, 7]
    for outcome in outcomes[1:3]:
        assert isinstance(outcome.error, KernelFailed)
        with pytest.raises(KernelFailed, match=outcome.request.name):
            outcome.unwrap()


def test_an_exception_is_a_typed_error_with_its_traceback(workers: Workers) -> None:
    (outcome,) = workers.map(_requests(("operator:truediv", 1, 0)))
    assert isinstance(outcome.error, KernelFailed)
    assert "ZeroDivisionError" in outcome.error.message
    assert "Traceback" in Path(outcome.error.source).read_text()


def test_a_value_that_is_not_plain_is_an_error(workers: Workers) -> None:
    (outcome,) = workers.map(_requests(("pathlib:Path", "x")))
    assert isinstance(outcome.error, KernelFailed)


def test_a_request_over_its_time_is_ended(tmp_path) -> None:
    with Workers(2, keep=tmp_path, timeout_seconds=1.0) as pool:
        outcomes = pool.map(_requests(("time:sleep", 60), ("operator:add", 1, 1)))
    assert "took more than 1 s" in outcomes[0].error.message
    assert outcomes[1].value == 2


def test_printing_does_not_disturb(workers: Workers) -> None:
    outcomes = workers.map(_requests(("builtins:print", "noise"), ("os:system", "echo noise")))
    assert [outcome.unwrap() for outcome in outcomes] == [None, 0]


def test_close_leaves_nothing_behind(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    pool = Workers(1)
    (outcome,) = pool.map(_requests(("os:getpid",)))
    pool.close()
    pool.close()
    assert list(tmp_path.rglob("worker-*")) == []
    with pytest.raises(ProcessLookupError):
        os.kill(outcome.value, 0)


PARENT = """
import sys
from aotc.aot.tasks.task import Request, keep_text
from aotc.aot.tasks.workers import Workers

say = "import os, time; os.write(2, b''); open({mark!r}, 'w').close(); time.sleep(60)"
Workers(1).map([Request("k", "builtins:exec", (say,))])
"""


def _folders_of_workers(folder):
    """Their names; `os.walk` passes over what is deleted as it looks."""
    return [name for _, names, _ in os.walk(folder) for name in names if name.startswith("worker-")]


def test_a_parent_that_is_killed_leaves_nothing_behind(tmp_path) -> None:
    """Neither the worker, which is at work, nor its folder."""
    mark, folder = tmp_path / "mark", tmp_path / "folder"
    folder.mkdir()
    command = [sys.executable, "-c", PARENT.format(mark=str(mark))]
    parent = subprocess.Popen(command, env={**os.environ, "TMPDIR": str(folder)})
    deadline = time.monotonic() + 60
    while not mark.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    parent.kill()
    parent.wait()
    while _folders_of_workers(folder) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert _folders_of_workers(folder) == []


def test_an_abort_of_llvm_keeps_the_ir(workers: Workers) -> None:
    pytest.importorskip("triton")
    scale = "llvm.x86.avx512.mask.scalef.ps.512"  # an instruction that the CPU has not
    vectors = ", ".join(["<16 x float> %v"] * 3)
    call = f"call <16 x float> @{scale}({vectors}, i16 -1, i32 4)"
    text = f"%v = load <16 x float>, ptr %a\n  %r = {call}\n  store <16 x float> %r, ptr %a\n"
    bad = GOOD.replace("  ret void", f"  {text}  ret void")
    requests = [Request("bad kernel", "native_calls:compile_text", (bad,))]
    requests += [Request("good", "native_calls:compile_text", (GOOD,))] * 2
    outcomes = workers.map(requests)
    error = outcomes[0].error
    assert isinstance(error, KernelFailed)
    assert "kernel `bad kernel` did not compile: " in error.message
    assert "LLVM ERROR: " in error.message
    assert error.source.endswith("aotc-bad_kernel.ll")
    assert scale in Path(error.source).read_text()
    assert [outcome.unwrap()[:4] for outcome in outcomes[1:]] == [b"\x7fELF"] * 2


def test_text_that_does_not_parse_keeps_the_ir(workers: Workers) -> None:
    pytest.importorskip("triton")
    bad = GOOD.replace("ret void", "%1 = add i32 %nothing, 1\n  ret void")
    (outcome,) = workers.map([Request("k", "native_calls:compile_text", (bad,))])
    assert isinstance(outcome.error, CodeGenerationError)
    assert "use of undefined value '%nothing'" in outcome.error.message
    assert "%nothing" in Path(outcome.error.source).read_text()


def test_a_typed_error_arrives_as_itself(workers: Workers) -> None:
    pytest.importorskip("triton")
    (outcome,) = workers.map([Request("k", COMPILE, (GOOD, "k", "pentium9"))])
    assert isinstance(outcome.error, ToolchainError)
    assert outcome.error.name == "k"


def test_workers_do_without_torch(workers: Workers) -> None:
    pytest.importorskip("triton")
    (outcome,) = workers.map([Request("k", "native_calls:modules_after_compile", (GOOD,))])
    assert "triton" in outcome.unwrap()
    assert "torch" not in outcome.unwrap()


HEAD = """
import os, struct, tempfile
from aotc.aot.tasks.task import pack

folder = tempfile.gettempdir()
pipes = [n for n in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{n}")]
pipes = [int(n) for n in pipes if os.readlink(f"/proc/self/fd/{n}").startswith("pipe:")]

def send(data):
    os.write(max(pipes), data)

def answer(value):
    send(struct.pack("<Q", len(pack(value))) + pack(value))

"""


@pytest.fixture
def liar(tmp_path):
    """Runs one text of Python in a confined worker, which answers whatever it writes itself."""

    def run(text, timeout_seconds=5):
        with Workers(
            1, keep=tmp_path / "kept", timeout_seconds=timeout_seconds, is_confined=True
        ) as pool:
            (outcome,) = pool.map([Request("kernel", "builtins:exec", (HEAD + text, {}))])
        assert outcome.value is None
        return outcome.error

    return run


def test_an_answer_deletes_and_reads_nothing_outside_the_workers_folder(liar, tmp_path):
    """The process that executes kernel sources may be anyone's: its answer is data."""
    secret = tmp_path / "home" / "inner" / "body.ll"
    secret.parent.mkdir(parents=True)
    secret.write_text("of nobody else")
    kind = "aotc.aot.targets.toolchain:CodeGenerationError"
    up, home = "/".join([".."] * 30), str(secret.parents[1])
    for source in (
        f"folder + '/{up}{secret}'",
        f"folder + '/outer/../..{secret}'",
        "folder + '/outer/inner/body.ll'",  # through a link to the folder above
        f"os.symlink({str(secret)!r}, os.makedirs(folder + '/a/b') or folder + '/a/b/body.ll')"
        " or folder + '/a/b/body.ll'",
    ):
        text = f"os.symlink({home!r}, folder + '/outer')\nsource = {source}\n"
        fields = "{'step': 's', 'name': 'n', 'reason': 'r', 'source': source}"
        error = liar(f"{text}answer(('error', ({kind!r}, {fields})))")
        assert type(error) is CodeGenerationError
        assert secret.read_text() == "of nobody else"
        kept = (tmp_path / "kept").glob("*")
        assert not [path for path in kept if b"nobody" in path.read_bytes()]


@pytest.mark.parametrize(
    "text",
    [
        "import marshal; data = marshal.dumps((1, 2)); send(struct.pack('<Q', len(data)) + data)",
        "send(struct.pack('<Q', 1 << 63) + b'x')",
        "send(struct.pack('<Q', 0))",
        "answer(7)",
        "answer(('value', 1, 2))",
        "answer(('error', ('os:system', {'command': 'true'})))",
        "answer(('error', ('aotc.aot.cli.__main__:main', {})))",
        "answer(('error', ('aotc.aot.errors:KernelFailed', {'a': 1})))",
        "answer(('exception', (1, 2)))",
        "data = b'\\x91' * 5000; send(struct.pack('<Q', len(data)) + data)",
        "os.mkfifo(folder + '/stderr2'); os.rename(folder + '/stderr2', folder + '/stderr')\n"
        "os.makedirs(folder + '/a/b'); os.mkfifo(folder + '/a/b/body.ll'); os._exit(3)",
    ],
)
def test_what_is_no_answer_is_a_typed_error(liar, text):
    assert isinstance(liar(text), KernelFailed)


def test_half_an_answer_is_not_waited_for(liar) -> None:
    error = liar("import time; send(b'x'); time.sleep(60)", timeout_seconds=1)
    assert isinstance(error, KernelFailed)
    assert "took more than 1 s" in str(error)


def test_a_text_that_is_kept_goes_through_no_link(tmp_path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "aotc-k.ll").symlink_to(victim)
    path = Path(keep_text(tmp_path, "k", "ll", b"text"))
    assert (path.read_text(), victim.read_text()) == ("text", "mine")
