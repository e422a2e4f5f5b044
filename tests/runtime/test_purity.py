"""Loading and running is data only: no code is evaluated, no process or socket made, no file
written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = str(Path(__file__).parents[1])
PROGRAM = """
import sys
import aotc.runtime.verify, aotc.runtime.programs.program, aotc.runtime.loading
sys.path.append({tests!r})
import null_driver; null_driver.drivers.load("{driver}")
import encodings.ascii, fcntl  # what load imports lazily: an import reads code

FORBIDDEN = ("exec", "compile", "pickle.", "marshal.", "subprocess.", "os.system", "os.exec",
             "os.posix_spawn", "os.fork", "os.remove", "os.rename", "os.mkdir", "os.rmdir",
             "os.truncate", "os.chmod", "os.link", "os.symlink", "os.putenv", "socket.", "shutil.",
             "urllib.", "import")
WRITES = {writes}
seen = []

def hook(event, args):
    if event == "open":
        if args[2] & WRITES:
            seen.append((event, args))
    elif event.startswith(FORBIDDEN):
        seen.append((event, args))

sys.addaudithook(hook)
program = aotc.runtime.load({path!r}, threads=2)
program(bytes({nbytes}))
program.bind(bytes({nbytes}))()
aotc.runtime.check({path!r})
program.close()
print(seen)
"""


def events(path, driver: str, nbytes: int) -> str:
    writes = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    code = PROGRAM.format(path=str(path), tests=TESTS, driver=driver, nbytes=nbytes, writes=writes)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def test_null_driver(bundle):
    assert events(bundle, "null", 24) == "[]"


def test_native_code(native):
    assert events(native, "cpu", 8 * 192) == "[]"
