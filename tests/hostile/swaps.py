"""Loads of a bundle that a writer replaces all the while.

    python tests/hostile/swaps.py FOLDER COUNT [fallback]

A second process replaces FOLDER/bundle without end, with two bundles in turn; `fallback`: as on a
file system that cannot exchange two directories. COUNT loads, each with a call: prints how many
gave the one and the other, and exits with 1 where one was refused, or gave other bytes than its
digest says.
"""

# ruff: noqa: E402

import os
import signal
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "pack"), str(Path(__file__).parents[1])]

import null_driver  # noqa: F401  # puts itself in the table of drivers
import small_bundle

from aotc.aot.pack import staging
from aotc.runtime import load
from aotc.runtime.errors import AotcError
from aotc.runtime.verify import verify

VALUES = (1.0, 2.0)


def replace_without_end(bundle: Path, is_fallback: bool) -> None:
    if is_fallback:
        staging._rename = lambda *_: False
    turn = 0
    while True:
        turn += 1
        small_bundle.write(bundle, value=VALUES[turn % 2], force=True)


def main() -> int:
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    bundle = folder / "bundle"
    weights = {small_bundle.write(folder / f"own {value}", value): value for value in VALUES}
    small_bundle.write(bundle, VALUES[0])
    writer = os.fork()
    if not writer:
        replace_without_end(bundle, "fallback" in sys.argv)
    found = dict.fromkeys(weights, 0)
    wrong = []
    try:
        for turn in range(count):
            try:
                with load(bundle) as program:
                    _, weight = program(bytes(24))
                    if weight.tolist() != [weights[program.digest]] * 6:
                        wrong.append(f"{program.digest}: {weight.tolist()}")
                    found[program.digest] += 1
                if turn % 10 == 0:
                    rows = verify(bundle, ("integrity",))
                    wrong += [str(row.detail) for row in rows if row.status != "ok"]
            except AotcError as error:
                wrong.append(str(error))
    finally:
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
    print(*found.values(), f"wrong {len(wrong)}", *wrong[:5], sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
