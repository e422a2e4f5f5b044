"""Load a bundle where torch cannot be imported, run its golden input, compare: one serving process.

Usage: python scripts/serve_once.py BUNDLE
"""

import time

STARTED_S = time.perf_counter()

import importlib.util  # noqa: E402  # the clock starts before anything is imported
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

from aotc import runtime  # noqa: E402

IMPORTED_S = time.perf_counter()


def main(path: Path) -> int:
    """Print each step and its time; exit 1 when the numbers are wrong."""
    for name in ("torch", "triton", "numpy"):
        print(f"   {name} is {'installed' if importlib.util.find_spec(name) else 'not installed'}")
    began_s = time.perf_counter()
    program = runtime.load(path)
    loaded_s = time.perf_counter()
    print(f"   {program}")

    from aotc.aot.host_array import buffers, outputs_of
    from aotc.runtime.comparison import compare
    from aotc.runtime.extras import read_golden

    golden = read_golden(path)
    inputs = buffers(program.inputs, golden.inputs)
    first_s = time.perf_counter()
    results = outputs_of(program, inputs)
    ran_s = time.perf_counter()
    assert "torch" not in sys.modules
    assert "triton" not in sys.modules
    print(f"   import runtime  {(IMPORTED_S - STARTED_S) * 1e3:8.1f} ms")
    print(f"   load the bundle {(loaded_s - began_s) * 1e3:8.1f} ms")
    print(f"   first call      {(ran_s - first_s) * 1e3:8.1f} ms")
    checks = [
        compare(spec, results[spec.name], golden.outputs[spec.name], golden.tolerances[spec.name])
        for spec in program.outputs
    ]
    for check in checks:
        word = "ok" if check.is_ok else "WRONG"
        limit = f"at most {check.tolerance:.0e} is right"
        error = f"max error {check.difference:.2e} relative to max |expected|"
        print(f"   {check.name}: {word}, {error} ({limit})")
    return 0 if all(check.is_ok for check in checks) else 1


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
