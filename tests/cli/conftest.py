"""A process that forks commands, and the folder in which their command lines work."""

import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import unprivileged

sys.path[:0] = [str(Path(__file__).parent)]

import working  # noqa: E402

from aotc.aot.cli.program import run  # noqa: E402


@pytest.fixture(scope="session")
def server():
    with working.Server(partial(subprocess.Popen, preexec_fn=unprivileged.drop)) as started:
        yield started


@pytest.fixture(scope="session")
def area(bundle, cache, tmp_path_factory):
    made = tmp_path_factory.mktemp("area") / "a b é 模型"
    made.mkdir()
    working.fill(made, bundle, cache, run)
    (made / "read-only").mkdir(mode=0o555)
    (made / "comma").write_text(working.COMMA)
    if shutil.which("localedef"):
        words = ["localedef", "-c", "-i", made / "comma", "-f", "UTF-8", made / "comma.UTF-8"]
        subprocess.run(words, check=False, capture_output=True)
    return made
