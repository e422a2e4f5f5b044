"""How fast a large bundle is pulled from a registry and loaded, beside what the loopback gives.

    python -m benchmarks.transfers --folder /dev/shm/transfers -o docs/robustness.md

A server on this machine has a bundle of that size: Debian's `docker-registry`, or with `--server
layout` a process that sends the files of an OCI layout by `sendfile`, and costs next to nothing.
In turns, several times: its weights' blob read over one connection, and over as many as a pull has,
and thrown away; the same written to a file; as many bytes from memory into a file, which is the
most that the file system takes; their digests in memory; a pull (every byte digested, the bundle
published), written and mapped (`aot/distribution/chunked.py`); a load of what was pulled, and of
the same image in an OCI layout. The best of the turns are printed, with the processor time of this
process and of the server. FOLDER needs four times the bytes; on a tmpfs no disk is measured.

With `-o` the table is put into that page of `scripts/robustness`.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from aotc.aot.distribution import chunked
from aotc.aot.distribution.exchange import pull_bundle, push_bundle
from aotc.aot.distribution.image import image_of
from aotc.aot.distribution.reference import read_reference
from aotc.aot.distribution.registry import Registry
from aotc.aot.distribution.sources import BUFFER_BYTES, Buffered, RegistrySource
from aotc.aot.distribution.transfers import JOBS
from aotc.aot.pack import TensorData, pack
from aotc.runtime import load
from aotc.runtime.bundle.image import Descriptor
from aotc.runtime.bundle.opened import Bundle
from aotc.runtime.trust.trust import Policy

REGISTRY = "docker-registry"
LOOPBACK = "loopback, all connections, thrown away"
Row = tuple[float, float, float]
TESTS = Path(__file__).parents[1] / "tests"
PIECE_BYTES = 32 << 20
CONFIG = """
version: 0.1
log: {{level: error}}
storage: {{filesystem: {{rootdirectory: {folder}}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""


def main() -> None:
    """Measure, print a line for each row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=2500)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--server", choices=("docker-registry", "layout"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True)
    sys.path[:0] = [str(TESTS), str(TESTS / "pack")]
    server = None
    try:
        bundle = _bundle(options.folder / "bundle", options.megabytes * 1_000_000)
        layout = options.folder / "layout"
        push_bundle(bundle, f"oci-layout:{layout}:v1")
        kind = options.server or ("docker-registry" if shutil.which(REGISTRY) else "layout")
        server, host = _serve(options.folder) if kind == REGISTRY else _serve_layout(layout)
        rows = _measure(bundle, f"{host}/model:v1", kind, options, server.pid)
    finally:
        if server is not None:
            server.kill()
        shutil.rmtree(options.folder, ignore_errors=True)
    lines = _table(rows, kind, options)
    print("\n".join(lines))
    if options.output:
        from robustness.page import put_text

        put_text(options.output, "How fast a large bundle is pulled and loaded", lines)


def _table(rows: dict[str, Row], kind: str, options: argparse.Namespace) -> list[str]:
    """The rows as Markdown, with the machine and what bounds it."""
    from robustness.page import describe_run

    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    words = ["python", "-m", "benchmarks.transfers", *sys.argv[1:]]
    nbytes = options.megabytes * 1e6
    is_fast = " sha_ni" in Path("/proc/cpuinfo").read_text()
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    run = describe_run(shlex.join(words), date)
    lines = [
        f"{run}; {'with' if is_fast else 'without'} SHA-NI; load {load}. "
        f"Server: {kind}, {options.jobs} connections, {nbytes / 1e9:g} GB, "
        f"best of {options.rounds}.",
        "",
        "| | seconds | GB/s | of the loopback | processor seconds a GB | of the server |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    loopback_s = rows[LOOPBACK][0]
    for name, (wall, own, served) in rows.items():
        each = (f"{seconds / nbytes * 1e9:.2f}" for seconds in (own, served))
        rate, part = nbytes / wall / 1e9, loopback_s / wall
        lines.append(f"| {name} | {wall:.2f} | {rate:.2f} | {part:.0%} | {' | '.join(each)} |")
    thrown_s, digest_s, pull_s = (
        min(sum(row[1:]) for name, row in rows.items() if name.startswith(word)) / nbytes * 1e9
        for word in (LOOPBACK, "SHA-256", "pull")
    )
    lines += [
        "",
        f"Both sides together take {thrown_s:.2f} processor seconds for a GB that is thrown away, "
        f"SHA-256 {digest_s:.2f}, a pull {pull_s:.2f}. So where the processors bound both, as on "
        f"two, digests alone leave {thrown_s / (thrown_s + digest_s):.0%} of the loopback's rate, "
        f"and a pull gives {thrown_s / pull_s:.0%} of it.",
    ]
    return lines


def _measure(
    bundle: Path, reference: str, kind: str, options: argparse.Namespace, server: int
) -> dict[str, Row]:
    """Seconds, processor seconds of this process and of the server, by name."""
    if kind == REGISTRY:
        push_bundle(bundle, reference, options.jobs)
    layout = f"oci-layout:{options.folder}/layout:v1"
    with Bundle(bundle) as opened:
        files = dict(image_of(opened).files)
    shutil.rmtree(bundle)
    layer = files["weights.safetensors"]
    out, plain = options.folder / "out", options.folder / "plain"
    count = len(os.sched_getaffinity(0))
    calls: dict[str, Callable[[], None]] = {
        "loopback, one connection, thrown away": lambda: _get(reference, layer, None, 1),
        LOOPBACK: lambda: _get(reference, layer, None, options.jobs),
        "memory into a file, one thread": lambda: _write(plain, layer.nbytes, 1),
        "memory into a file, as many threads": lambda: _write(plain, layer.nbytes, options.jobs),
        "SHA-256 of memory, one thread": lambda: _digest(layer.nbytes, 1),
        "SHA-256 of memory, all processors": lambda: _digest(layer.nbytes, count),
        "loopback into a file, not digested": lambda: _get(reference, layer, plain, options.jobs),
        "pull, written, every byte digested": lambda: _pull(reference, out, options, 1 << 30),
        "pull, mapped, every byte digested": lambda: _pull(reference, out, options, 1),
        "load of it, every byte digested": lambda: load(out).close(),
        "load of the OCI layout, every byte digested": lambda: load(layout).close(),
    }
    best: dict[str, Row] = {}
    for _ in range(options.rounds):
        for name, call in calls.items():
            if name.startswith("pull"):  # freeing the pages of the last one is no part of it
                shutil.rmtree(out, ignore_errors=True)
            before = (time.perf_counter(), time.process_time(), _processor_s(server))
            call()
            after = (time.perf_counter(), time.process_time(), _processor_s(server))
            found = (after[0] - before[0], after[1] - before[1], after[2] - before[2])
            best[name] = min(best.get(name, found), found)
            plain.unlink(missing_ok=True)
    return best


def _processor_s(process: int) -> float:
    """Processor seconds that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _digest(nbytes: int, threads: int) -> None:
    """Digests of as many bytes, of memory that each thread uses again and again."""

    def share(_: int) -> None:
        data = bytes(4 << 20)
        for _ in range(nbytes // threads // len(data)):
            hashlib.sha256(data)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(share, range(threads)))


def _get(reference: str, layer: Descriptor, path: Path | None, jobs: int) -> None:
    """The blob in pieces, side by side, as a pull reads it."""
    descriptor = -1 if path is None else os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    with Registry(read_reference(reference), None) as registry:
        source = RegistrySource(registry)

        def piece(begin: int) -> None:
            place = begin

            def consume(view: memoryview) -> None:
                nonlocal place
                if descriptor >= 0:
                    os.pwrite(descriptor, view, place)
                place += len(view)

            source.stream(layer, begin, min(begin + PIECE_BYTES, layer.nbytes), Buffered(consume))

        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(piece, range(0, layer.nbytes, PIECE_BYTES)))
    if descriptor >= 0:
        os.fsync(descriptor)
        os.close(descriptor)


def _write(path: Path, nbytes: int, jobs: int) -> None:
    """Bytes of this process's memory into a file, in the steps of a pull."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    os.ftruncate(descriptor, nbytes)

    def piece(begin: int) -> None:
        data = memoryview(bytearray(BUFFER_BYTES))
        end = min(begin + PIECE_BYTES, nbytes)
        for place in range(begin, end, BUFFER_BYTES):
            os.pwrite(descriptor, data[: end - place], place)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(piece, range(0, nbytes, PIECE_BYTES)))
    os.fsync(descriptor)
    os.close(descriptor)


def _pull(reference: str, out: Path, options: argparse.Namespace, processors: int) -> None:
    """A pull whose file is mapped where there are as many processors."""
    chunked.MANY_PROCESSORS = processors
    pull_bundle(reference, out, Policy((), None), force=True, jobs=options.jobs)


def _bundle(path: Path, nbytes: int) -> Path:
    """The small bundle of the tests, with weights of that size."""
    import null_driver  # noqa: F401  # runs it
    import small_bundle

    contents = small_bundle.contents()
    weights = {**contents.weights, "large": TensorData("u8", (nbytes,), os.urandom(nbytes))}
    pack(replace(contents, weights=weights), path)
    return path


def _serve(folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    program = shutil.which(REGISTRY)
    if program is None:
        raise SystemExit("`docker-registry` is not installed (Debian's package of that name)")
    port = _free_port()
    config = folder / "registry.yml"
    config.write_text(CONFIG.format(folder=folder / "registry", port=port))
    quiet = subprocess.DEVNULL
    return _started([program, "serve", str(config)], port, quiet)


def _serve_layout(layout: Path) -> tuple[subprocess.Popen[bytes], str]:
    port = _free_port()
    return _started(
        [sys.executable, "-m", "benchmarks.layout_server", str(layout), str(port)], port
    )


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _started(
    command: list[str], port: int, out: int | None = None
) -> tuple[subprocess.Popen[bytes], str]:
    server = subprocess.Popen(command, stdout=out, stderr=out)
    while server.poll() is None:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/").close()
            return server, f"127.0.0.1:{port}"
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"`{command[0]}` did not start")


if __name__ == "__main__":
    main()
