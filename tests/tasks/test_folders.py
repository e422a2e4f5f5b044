"""Temporary folders of builds: private, and gone when a build was killed."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from aotc.aot.folders import FolderUnsafe, make_owned, owned, sweep, user_folder
from aotc.aot.measure.device_lock import device_turn
from aotc.aot.tasks.task import Request
from aotc.aot.tasks.workers import Workers

TEMPORARY = re.compile(r"mkdtemp|TemporaryDirectory|mkstemp|NamedTemporary")
BUILD = """
from aotc.aot.tasks.task import Request
from aotc.aot.tasks.workers import Workers
pool = Workers(2)
pool.map([Request("k", "builtins:len", ([1],)) for _ in range(2)])
print("begun", flush=True)
input()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The system's temporary folder, of this process and those that it starts."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def left(folder):
    return sorted(path.name for path in folder.rglob("worker-*"))


@pytest.fixture
def killed(folder):
    """A build with two workers was killed with them; their folders are left."""
    killed = subprocess.Popen(
        [sys.executable, "-c", BUILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert killed.stdout.readline() == "begun\n"
    assert len(left(folder)) == 2
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert len(left(folder)) == 2


LINK = """
import os, signal
from aotc.aot import folders
with folders.owned("link") as path:
    open(os.path.join(path, "0.o"), "w").close()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_folder_of_a_killed_process_goes_with_the_next(folder):
    assert subprocess.run([sys.executable, "-c", LINK], check=False).returncode == -signal.SIGKILL
    (left_behind,) = Path(user_folder()).iterdir()
    with owned("link") as path:
        assert not left_behind.exists()
        assert Path(path).is_dir()
    assert list(Path(user_folder()).iterdir()) == []


def test_every_temporary_folder_of_the_compiler_is_owned():
    """Others would stay where a build is killed."""
    root = Path(__file__).parents[2] / "aot"
    texts = {path: path.read_text() for path in root.rglob("*.py")}
    found = [path.name for path, text in texts.items() if TEMPORARY.search(text)]
    assert found == []


def test_a_killed_build_leaves_nothing_after_the_next_one(folder, killed):
    with Workers(1) as pool:
        (outcome,) = pool.map([Request("k", "builtins:len", ([1, 2],))])
        assert outcome.value == 2
        assert len(left(folder)) == 1  # its own
    assert not left(folder)


def test_a_killed_build_leaves_nothing_after_a_collection(folder, killed):
    command = (sys.executable, "-m", "aotc.aot.cli", "cache", "gc", "--json")
    done = subprocess.run(
        [*command, "--cache-dir", folder / "cache"], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["folders"] == 2
    assert not left(folder)


def test_the_folder_of_a_living_process_stays(folder):
    mine, lock = make_owned("worker")
    assert sweep() == 0
    other = subprocess.run(
        [sys.executable, "-c", "from aotc.aot.folders import sweep; print(sweep())"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout == "0\n"
    assert Path(mine).is_dir()
    os.close(lock)
    assert sweep() == 1
    assert not Path(mine).exists()


@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
def test_the_folder_is_private_whatever_the_umask(umask):
    before = os.umask(umask)
    try:
        with device_turn():
            made, lock = make_owned("worker")
        os.close(lock)
    finally:
        os.umask(before)
    for path in (user_folder(), made):
        assert Path(path).stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_made_is_refused(folder, tmp_path):
    place = folder / f"aotc-{os.geteuid()}"
    place.mkdir()
    place.chmod(0o777)
    with pytest.raises(FolderUnsafe, match="of mode 777"):
        user_folder()
    place.rmdir()
    place.symlink_to(tmp_path)
    with pytest.raises(FolderUnsafe, match="a link"), device_turn():
        pass
    place.unlink()
    os.mkfifo(place)
    with pytest.raises(FolderUnsafe, match="a file"):
        make_owned("worker")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_the_folder_of_another_user_is_refused(folder):
    place = folder / f"aotc-{os.geteuid()}"
    place.mkdir(mode=0o700)
    os.chown(place, 12345, -1)
    with pytest.raises(FolderUnsafe, match="owned by user 12345") as raised:
        user_folder()
    assert raised.value.exit_code == 7
    assert "TMPDIR" in str(raised.value)


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_a_lock_that_is_no_file_is_not_followed(folder, kind):
    from aotc.runtime.errors import EnvironmentFault

    path = Path(user_folder()) / "cuda-0.turn"
    target = folder / "target"
    {"link": lambda: path.symlink_to(target), "fifo": lambda: os.mkfifo(path)}.get(
        kind, path.mkdir
    )()
    if kind == "fifo":  # opened without blocking; nobody else can make one there
        with device_turn():
            return
    with pytest.raises(EnvironmentFault), device_turn():
        pass
    assert not target.exists()
