"""How fast a large bundle is pulled from a registry and loaded, beside what the loopback gives.

    python -m benchmarks.transfers --megabytes 2500 --folder /dev/shm/transfers

Debian's `docker-registry` on this machine holds a bundle of that size. In turns, several times:
its weights' blob read over the same connections and thrown away, the same written to a file, a pull
(every byte digested, the bundle published), a load of what was pulled, and a load of the same image
in an OCI layout. The best of the turns are printed, with the processor time of this process. FOLDER
needs four times the bytes; on a tmpfs no disk is measured.
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
from aotc.aot.distribution.sources import RegistrySource
from aotc.aot.pack import TensorData, pack
from aotc.runtime import load
from aotc.runtime.bundle.image import Descriptor
from aotc.runtime.bundle.opened import Bundle
from aotc.runtime.trust.trust import Policy

TESTS = Path(__file__).parents[1] / "tests"
PIECE_BYTES = 64 << 20
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
    options = parser.parse_args()
    options.folder.mkdir(parents=True)
    server = None
    try:
        bundle = _bundle(options.folder / "bundle", options.megabytes * 1_000_000)
        server, host = _serve(options.folder)
        _measure(bundle, f"{host}/model:v1", options)
    finally:
        if server is not None:
            server.kill()
        shutil.rmtree(options.folder, ignore_errors=True)


def _measure(bundle: Path, reference: str, options: argparse.Namespace) -> None:
    started = time.perf_counter()
    push_bundle(bundle, reference, options.jobs)
    print(f"push (digested twice, stored by the registry)  {time.perf_counter() - started:6.2f} s")
    layout = f"oci-layout:{options.folder}/layout:v1"
    push_bundle(bundle, layout)
    with Bundle(bundle) as opened:
        files = dict(image_of(opened).files)
    shutil.rmtree(bundle)
    layer = files["weights.safetensors"]
    out, plain = options.folder / "out", options.folder / "plain"
    rows: dict[str, Callable[[], None]] = {
        "loopback: the weights read and thrown away": lambda: _get(reference, layer, None, options),
        "the same, written to a file, not digested": lambda: _get(reference, layer, plain, options),
        "pull, every byte digested": lambda: _pull(reference, out, options),
        "load of it, every byte digested": lambda: load(out).close(),
        "load of it, weights not digested again": lambda: load(out, verify="code").close(),
        "load of the OCI layout, every byte digested": lambda: load(layout).close(),
    }
    best: dict[str, tuple[float, float]] = {}
    for _ in range(options.rounds):
        for name, call in rows.items():
            wall, processor = time.perf_counter(), time.process_time()
            call()
            found = (time.perf_counter() - wall, time.process_time() - processor)
            best[name] = min(best.get(name, found), found)
            plain.unlink(missing_ok=True)
    for name, (wall, processor) in best.items():
        rate = layer.nbytes / wall / 1e9
        print(f"{name:<46} {wall:6.2f} s  {rate:6.2f} GB/s  processor {processor:6.2f} s")


def _get(reference: str, layer: Descriptor, path: Path | None, options: argparse.Namespace) -> None:
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

        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(piece, range(0, layer.nbytes, PIECE_BYTES)))
    if descriptor >= 0:
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
    program = shutil.which("docker-registry")
    if program is None:
        raise SystemExit("`docker-registry` is not installed (Debian's package of that name)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = folder / "registry.yml"
    config.write_text(CONFIG.format(folder=folder / "registry", port=port))
    quiet = subprocess.DEVNULL
    server = subprocess.Popen([program, "serve", config], stdout=quiet, stderr=quiet)
    while server.poll() is None:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/").close()
            return server, f"127.0.0.1:{port}"
        except OSError:
            time.sleep(0.05)
    raise SystemExit("`docker-registry` did not start")


if __name__ == "__main__":
    main()
