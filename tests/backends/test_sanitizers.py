"""The examples under AddressSanitizer and UBSan, called with odd sizes; a report fails the test."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.backends.conftest import EXAMPLES

CALLS = {
    "custom_add": """
for size in (0, 1, 7, 1000):
    for dtype in ("f4", "f8"):
        a, out = numpy.ones(size, dtype), numpy.zeros(size, dtype)
        library.add(a, a, size, out=out)
        assert (out == 2).all()
""",
    "image_filter": """
for shape in ((1, 1, 1), (5, 3, 4), (17, 31, 3)):
    picture = numpy.arange(numpy.prod(shape), dtype="u1").reshape(shape)
    for radius in (0, 1, 9):
        library.box_blur(picture, radius, out=numpy.empty_like(picture))
    library.adjust_gamma(picture[::-1], 2.2, out=numpy.empty_like(picture))
""",
    "gemm": """
for m, k, n in ((1, 1, 1), (7, 300, 17), (13, 5, 33), (6, 256, 16), (3, 0, 2)):
    a, b = numpy.ones((m, k), "f4"), numpy.ones((k, n), "f4")
    c = numpy.full((m, n), -1, "f4")
    library.matmul(a, b, out=c)
    assert (c == k).all()
""",
}
FAULTY = """
for size in (4, 64):
    library.fill(1.0, out=numpy.zeros(size, "f4"))
"""
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")


def sanitizer_libraries() -> str:
    """The compiler's runtime of AddressSanitizer, to be loaded first; skips without one."""
    if shutil.which("cc") is None:
        pytest.skip("needs a compiler: there is no `cc`")
    found = []
    for name in ("libasan.so", "libubsan.so", "libstdc++.so"):
        ran = subprocess.run(
            ["cc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
        )
        path = ran.stdout.strip()
        if not Path(path).is_absolute():
            pytest.skip(f"needs the compiler's sanitizers: there is no `{name}`")
        found.append(path)
    return " ".join(found)


def run(path: Path, calls: str) -> subprocess.CompletedProcess[str]:
    code = (
        "import numpy\nfrom aotc import runtime\n"
        f"library = runtime.get_backend({str(path)!r})\n{calls}\nprint('done')\n"
    )
    environment = {
        **os.environ,
        "LD_PRELOAD": sanitizer_libraries(),
        "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter's own are none of ours
    }
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment
    )


@pytest.mark.parametrize("name", CALLS)
def test_example(name, compile_library):
    sanitizer_libraries()
    source = next(EXAMPLES.glob(f"{name}/{name}.c*"))
    ran = run(compile_library(source, name, *SANITIZE), CALLS[name])
    assert (ran.returncode, ran.stdout) == (0, "done\n"), ran.stderr


def test_an_overrun_is_seen(compile_library):
    """So that the tests above can fail."""
    sanitizer_libraries()
    path = compile_library("odd.c", "odd", *SANITIZE, "-DKERNEL=overrun")
    ran = run(path, FAULTY)
    assert ran.returncode != 0
    assert "AddressSanitizer: heap-buffer-overflow" in ran.stderr
