"""Processes that measure on one device take turns."""

import subprocess
import sys

from aotc.aot.measure.device_lock import device_turn

OTHER = """
from aotc.aot.measure.device_lock import device_turn
print("asks", flush=True)
with device_turn({ordinal}):
    print("has it", flush=True)
"""


def begun(ordinal):
    command = [sys.executable, "-c", OTHER.format(ordinal=ordinal)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "asks\n"
    return process


def test_another_process_waits_until_the_turn_ends(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with device_turn(3):
        other = begun(3)
        # Another device is free meanwhile, which also gives the first one time to come through.
        assert begun(4).communicate()[0] == "has it\n"
        assert other.poll() is None
    assert other.communicate()[0] == "has it\n"
    assert other.returncode == 0


def test_a_turn_can_be_taken_again(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for _ in range(2):
        with device_turn():
            pass
    assert [path.stat().st_mode & 0o777 for path in tmp_path.glob("*/*")] == [0o600]
