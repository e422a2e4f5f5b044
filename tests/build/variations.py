"""Builds of one model in different surroundings; every file of the bundles has the same bytes.

    python tests/build/variations.py FOLDER SPEC...

Each row of VARIATIONS is a build by a process of its own. What cannot be varied here (another user,
another host name) is left out with a line that says so. Exit 1 where two bundles differ.
"""

import filecmp
import os
import shutil
import subprocess
import sys
from pathlib import Path

# Whether processes can be started there as a build starts its workers.
PROBE = [
    sys.executable,
    "-c",
    "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import torch'], check=True)",
]
IMPOSSIBLE = "not possible here"
# Variation → what differs: environment, options of `aotc build`, words before the command.
VARIATIONS = {
    "as it is": {},
    "another working folder": {"cwd": "elsewhere"},
    "a deep folder": {"depth": 12},
    "sources of another time": {"mtime": 86_400},
    "another user": {"words": ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")},
    "another host": {"words": ("unshare", "--uts", "sh", "-c", 'hostname other; exec "$@"', "-")},
    "another time zone": {"environment": {"TZ": "Pacific/Kiritimati"}},
    "another locale": {"environment": {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "1"}},
    "another hash seed": {"environment": {"PYTHONHASHSEED": "4711"}},
    "one compiler process": {"options": ("--jobs", "1")},
    "a warm cache": {"cache": "as it is"},
    "another umask": {"words": ("sh", "-c", 'umask 0; exec "$@"', "-")},
}


def build(folder: Path, name: str, spec: Path) -> Path | str:
    """The bundle of a variation, or why there is none."""
    row = VARIATIONS[name]
    own = folder / name.replace(" ", "-")
    own = own.joinpath(*["deep"] * row.get("depth", 0))
    own.mkdir(parents=True)
    copy = own / spec.name  # with all that lies beside it
    shutil.copytree(spec.parent, own, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pyc*"))
    if "mtime" in row:
        os.utime(copy, (row["mtime"], row["mtime"]))
    cwd = own / row.get("cwd", ".")
    cwd.mkdir(exist_ok=True)
    words = row.get("words", ())
    if words and subprocess.run([*words, *PROBE], capture_output=True, check=False).returncode:
        return IMPOSSIBLE
    if name == "another user":
        for path in (own, *own.rglob("*")):
            os.chown(path, 65534, 65534)
    cache = folder / row["cache"].replace(" ", "-") / "cache" if "cache" in row else own / "cache"
    bundle = own / "bundle"
    command = [sys.executable, "-m", "aotc.aot.cli", "build", copy, "-o", bundle, "--quiet"]
    given = [*command, "--cache-dir", cache, *row.get("options", ())]
    environment = {**os.environ, "HOME": str(own), **row.get("environment", {})}
    ran = subprocess.run(
        [*words, *map(str, given)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return bundle if ran.returncode == 0 else ran.stderr[-2000:]


def differing(one: Path, other: Path) -> list[str]:
    """Names of the files that differ, or that only one of them has."""
    names = {
        str(path.relative_to(root))
        for root in (one, other)
        for path in root.rglob("*")
        if path.is_file()
    }
    return sorted(filecmp.cmpfiles(one, other, names, shallow=False)[1]) + sorted(
        filecmp.cmpfiles(one, other, names, shallow=False)[2]
    )


def main(folder: Path, specs: list[Path], names: list[str]) -> int:
    """Build and compare; a line for each variation."""
    failed = 0
    for spec in specs:
        if folder.resolve().is_relative_to(spec.resolve().parent):
            sys.exit(f"{folder} lies beside {spec}, whose folder is copied into it")
        first: Path | None = None
        for name in names:
            made = build(folder / spec.stem, name, spec)
            if isinstance(made, str):
                is_absent = made == IMPOSSIBLE
                failed += not is_absent
                print(f"{spec.stem}: {name}: {made}")
                continue
            first = first or made
            found = differing(first, made)
            failed += bool(found)
            print(f"{spec.stem}: {name}: {', '.join(found) or 'the same'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), [Path(each) for each in sys.argv[2:]], list(VARIATIONS)))
