"""How fast a large bundle is pulled from a registry and loaded, beside what the loopback gives.

    python -m benchmarks.transfers --megabytes 2500 --jobs 16 --folder /dev/shm/transfers

A server on this machine has a bundle of that size: Debian's `docker-registry`, or with `--server
layout` a process that sends the files of an OCI layout by `sendfile`, and costs next to nothing.
In turns, several times: its weights' blob read over one connection, and over as many as a pull has,
and thrown away; the same written to a file; as many bytes from memory into a file, which is the
most that the file system takes; a pull (every byte digested, the bundle published); a load of what
was pulled, and of the same image in an OCI layout. The best of the turns are printed, with the
processor time of this process. FOLDER needs four times the bytes; on a tmpfs no disk is measured.
"""

from __future__ import annotations

import argparse
import os
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

from aotc.aot.distribution.exchange import pull_bundle, push_bundle
from aotc.aot.distribution.image import image_of
from aotc.aot.distribution.reference import read_reference
from aotc.aot.distribution.registry import Registry
from aotc.aot.distribution.sources import BUFFER_BYTES, RegistrySource
from aotc.aot.pack import TensorData, pack
from aotc.runtime import load
from aotc.runtime.bundle.image import Descriptor
from aotc.runtime.bundle.opened import Bundle
from aotc.runtime.trust.trust import Policy

REGISTRY = "docker-registry"
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
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--server", choices=("docker-registry", "layout"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True)
    server = None
    try:
        bundle = _bundle(options.folder / "bundle", options.megabytes * 1_000_000)
        layout = options.folder / "layout"
        push_bundle(bundle, f"oci-layout:{layout}:v1")
        kind = options.server or ("docker-registry" if shutil.which(REGISTRY) else "layout")
        print(
            f"server: {kind}; {options.jobs} connections; {len(os.sched_getaffinity(0))} processors"
        )
        server, host = _serve(options.folder) if kind == REGISTRY else _serve_layout(layout)
        _measure(bundle, f"{host}/model:v1", kind, options)
    finally:
        if server is not None:
            server.kill()
        shutil.rmtree(options.folder, ignore_errors=True)


def _measure(bundle: Path, reference: str, kind: str, options: argparse.Namespace) -> None:
    if kind == REGISTRY:
        started = time.perf_counter()
        push_bundle(bundle, reference, options.jobs)
        seconds = time.perf_counter() - started
        print(f"push (digested twice, stored by the registry)  {seconds:6.2f} s")
    layout = f"oci-layout:{options.folder}/layout:v1"
    with Bundle(bundle) as opened:
        files = dict(image_of(opened).files)
    shutil.rmtree(bundle)
    layer = files["weights.safetensors"]
    out, plain = options.folder / "out", options.folder / "plain"
    rows: dict[str, Callable[[], None]] = {
        "loopback, one connection": lambda: _get(reference, layer, None, 1),
        "loopback, all connections": lambda: _get(reference, layer, None, options.jobs),
        "memory into a file, as many threads": lambda: _write(plain, layer.nbytes, options.jobs),
        "the same, written to a file, not digested": lambda: _get(
            reference, layer, plain, options.jobs
        ),
        "pull, every byte digested": lambda: _pull(reference, out, options),
        "load of it, every byte digested": lambda: load(out).close(),
        "load of it, weights not digested again": lambda: load(out, verify="code").close(),
        "load of the OCI layout, every byte digested": lambda: load(layout).close(),
    }
    best: dict[str, tuple[float, float]] = {}
    for _ in range(options.rounds):
        for name, call in rows.items():
            if name.startswith("pull"):  # freeing the pages of the last one is no part of it
                shutil.rmtree(out, ignore_errors=True)
            wall, processor = time.perf_counter(), time.process_time()
            call()
            found = (time.perf_counter() - wall, time.process_time() - processor)
            best[name] = min(best.get(name, found), found)
            plain.unlink(missing_ok=True)
    for name, (wall, processor) in best.items():
        rate = layer.nbytes / wall / 1e9
        print(f"{name:<46} {wall:6.2f} s  {rate:6.2f} GB/s  processor {processor:6.2f} s")


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

            source.stream(layer, begin, min(begin + PIECE_BYTES, layer.nbytes), consume)

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


def _pull(reference: str, out: Path, options: argparse.Namespace) -> None:
    pull_bundle(reference, out, Policy((), None), force=True, jobs=options.jobs)


def _bundle(path: Path, nbytes: int) -> Path:
    """The small bundle of the tests, with weights of that size."""
    sys.path[:0] = [str(TESTS), str(TESTS / "pack")]
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
