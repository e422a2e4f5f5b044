"""From an imported graph to a program in this process, through the artifact cache.

An entry of the bucket `programs` is a bundle in one flat folder, so that `runtime.load` reads it
where it lies. Its key is a digest of the graph's text and constants, the target, the options and
the toolchain.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping
from pathlib import Path

from aotc.aot import contents
from aotc.aot.capture.sizes import Sizes
from aotc.aot.compile import Compiled, Machinery, compile_for
from aotc.aot.dynamo.counting import counting
from aotc.aot.dynamo.machinery import machinery, toolchain_digest
from aotc.aot.dynamo.options import Options
from aotc.aot.ir.graph import Graph
from aotc.aot.ir.legal import check
from aotc.aot.ir.text import print_graph
from aotc.aot.options import BuildOptions
from aotc.aot.pack.tensors import tensor_file
from aotc.aot.rewrites.rewrite import rewrite_each
from aotc.aot.signature import signature
from aotc.aot.stages import Clock, write_texts
from aotc.cache import Key
from aotc.runtime import Program, load, settings
from aotc.runtime.manifest import (
    CHUNK_BYTES,
    DYNAMIC,
    MANIFEST_NAME,
    WEIGHTS_NAME,
    FileEntry,
    Manifest,
    Target,
    WeightsEntry,
)

PLAN_NAME = "plan.msgpack"
LIBRARY_NAME = "kernels.so"
Files = dict[str, bytes]


def key_of(graph: Graph, sizes: Sizes, options: Options) -> Key:
    """Every fact that a graph's program depends on."""
    text = hashlib.sha256(print_graph(graph).encode())
    for dim in sizes.dims:
        text.update(f"{dim.name} {dim.low} {dim.high} {dim.typical}\n".encode())
    for name, constant in sorted(graph.constants.items()):
        text.update(f"{name} {constant.type}\n".encode() + constant.array.tobytes())
    return Key.of(
        "programs",
        graph=text.hexdigest(),
        skip=",".join(settings.read("AOTC_SKIP").value),
        target=options.target.name,
        toolchain=toolchain_digest(),
        tune=options.tune,
    )


def program_of(key: Key, graph: Graph, sizes: Sizes, options: Options) -> Program:
    """The program of a graph, from the cache or compiled and put there.

    Raises the errors of the stages for what cannot be compiled.
    """
    found = cached_program(key, options)
    if found is not None:
        return found
    check(graph, "capture")
    files = _compiled_files(graph, sizes, options)
    machinery().store.put(key, files)
    counting().programs_made += 1
    with tempfile.TemporaryDirectory(prefix="aotc-program-") as folder:
        for name, data in files.items():
            Path(folder, name).write_bytes(data)
        return load(folder, threads=options.threads, verify="code")


def cached_program(key: Key, options: Options) -> Program | None:
    """The program of a key where the cache has it; the store has digested what is loaded."""
    store = machinery().store
    folder = store.folder_of(key) if store.get(key) is not None else None
    if folder is None:
        return None
    program = load(folder, threads=options.threads, verify="code")
    counting().programs_cached += 1
    return program


def _compiled_files(graph: Graph, sizes: Sizes, options: Options) -> Files:
    """The stages from rewrite to plan, and the files of the bundle."""
    shared, clock = machinery(), Clock()
    own = Machinery(shared.workers, shared.store, type(shared.counts)())
    build_options = BuildOptions(
        cache_folder=shared.store.root,
        cache_lower=shared.store.lower,
        tune=options.tune,  # type: ignore[arg-type]
        skip=frozenset(settings.read("AOTC_SKIP").value),
    )
    dump = settings.read("AOTC_DUMP").value
    try:
        with clock.stage("rewrite"):
            clock.dump("capture", print_graph(graph, with_sources=True))
            rewritten, _ = rewrite_each(graph, ("cpu",), skip=build_options.skip)["cpu"]
            clock.dump("rewrite", print_graph(rewritten))
        compiled = compile_for(options.target, rewritten, build_options, own, clock)
    finally:
        if dump is not None:
            write_texts(Path(dump) / f"graph-{counting().graphs}", clock.texts)
        counting().kernels_compiled += own.counts.compiled
        counting().kernels_cached += own.counts.cache_hits
    return _files(graph, sizes, compiled)


def _files(graph: Graph, sizes: Sizes, compiled: Compiled) -> Files:
    """A bundle of one target, all its files in one folder."""
    types = signature(graph, sizes.dims, sizes.guards)
    target = compiled.target
    files = {PLAN_NAME: compiled.plan.to_msgpack(), LIBRARY_NAME: compiled.library}
    entries = tuple(_entry(name, data) for name, data in files.items())
    weights = contents.weights(compiled.constants, compiled.plan)
    if weights:
        files[WEIGHTS_NAME] = b"".join(map(bytes, tensor_file(weights)))
    abi = compiled.plan.abi
    row = Target(target.name, target.device, abi, target.needs, PLAN_NAME, LIBRARY_NAME)
    manifest = Manifest(
        features=(DYNAMIC,) if types.dims else (),
        targets=(row,),
        inputs=types.inputs,
        outputs=types.outputs,
        weights=_weights_entry(files),
        files=entries,
        dims=types.dims,
        sizes=types.sizes,
        guards=types.guards,
    )
    return {**files, MANIFEST_NAME: manifest.to_bytes()}


def _entry(name: str, data: bytes) -> FileEntry:
    return FileEntry(name, len(data), hashlib.sha256(data).digest())


def _weights_entry(files: Mapping[str, bytes]) -> WeightsEntry | None:
    data = files.get(WEIGHTS_NAME)
    if data is None:
        return None
    starts = range(0, len(data), CHUNK_BYTES)
    digests = tuple(hashlib.sha256(data[start : start + CHUNK_BYTES]).digest() for start in starts)
    return WeightsEntry(WEIGHTS_NAME, len(data), CHUNK_BYTES, digests)
