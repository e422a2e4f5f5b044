"""From an imported graph to a program in this process: our stages, and the artifact cache."""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from aotc.aot import contents
from aotc.aot.capture.sizes import Sizes
from aotc.aot.compile import Compiled, Resources, compile_for
from aotc.aot.dynamo.options import Options
from aotc.aot.dynamo.programs import cached_program, counting, opened, store, toolchain_digest
from aotc.aot.dynamo.user_rewrites import apply_registered
from aotc.aot.folders import owned
from aotc.aot.ir.graph import Graph
from aotc.aot.ir.legal import check
from aotc.aot.ir.text import print_graph
from aotc.aot.options import BuildOptions
from aotc.aot.pack.tensors import tensor_file
from aotc.aot.plan.blocks import Block
from aotc.aot.rewrites.registry import digest_of, registered
from aotc.aot.rewrites.rewrite import INEXACT, rewrite
from aotc.aot.signature import signature
from aotc.aot.stages import Clock, write_texts
from aotc.aot.targets.families import find_target
from aotc.aot.tasks.workers import Workers
from aotc.aot.tune.compiling import Counts
from aotc.cache import Key
from aotc.runtime import Program, settings
from aotc.runtime.bundle.manifest import (
    CHUNK_BYTES,
    MAIN,
    MANIFEST_NAME,
    WEIGHTS_NAME,
    FileEntry,
    Manifest,
    Target,
    WeightsEntry,
)
from aotc.runtime.bundle.native_plan import BackendEntry
from aotc.runtime.bundle.plan import PLAN_ABI, files_of

PLAN_NAME = "plan.msgpack"
LIBRARY_NAME = "kernels.so"
Files = dict[str, bytes]


@functools.cache
def _workers(jobs: int | None) -> Workers:
    """The compiler processes of this process, which wait for the next graph."""
    workers = Workers(jobs)
    atexit.register(workers.close)
    os.register_at_fork(after_in_child=_workers.cache_clear)  # a child has none of them
    return workers


def key_of(
    graph: Graph, sizes: Sizes, options: Options, blocks: Sequence[Block] | None = None
) -> Key:
    """Every fact that a graph's program depends on; blocks: of its caller's memory."""
    text = hashlib.sha256(print_graph(graph).encode())
    for dim in sizes.dims:
        text.update(f"{dim.name} {dim.low} {dim.high} {dim.typical}\n".encode())
    if blocks is not None:
        text.update(repr(blocks).encode())
    for name, constant in sorted(graph.constants.items()):
        text.update(f"{name} {constant.type}\n".encode() + constant.array.tobytes())
    return Key.of(
        "programs",
        graph=text.hexdigest(),
        rewrites=digest_of(registered()),
        skip=",".join(settings.read("AOTC_SKIP").value),
        target=options.target,
        precision=options.dot_precision,
        toolchain=toolchain_digest(),
        tune=options.tune,
        rounds=options.round_intermediates,
    )


def program_of(
    key: Key, graph: Graph, sizes: Sizes, options: Options, blocks: Sequence[Block] | None = None
) -> Program:
    """The program of a graph, from the cache or compiled and put there; buffers in the blocks of
    its caller's memory are more outputs of it.

    Raises the errors of the stages for what cannot be compiled.
    """
    found = cached_program(key, options)
    if found is not None:
        return found
    check(graph, "capture")
    files = _compiled_files(graph, sizes, options, blocks)
    store().put(key, files)
    counting().programs_made += 1
    with owned("program") as folder:
        for name, data in files.items():
            Path(folder, name).write_bytes(data)
        return opened(folder, options, key)


def _compiled_files(graph: Graph, sizes: Sizes, options: Options, blocks: Sequence[Block]) -> Files:
    """The stages from rewrite to plan, and the files of the bundle."""
    clock, kept = Clock(), store()
    own = Resources(_workers(settings.read("AOTC_JOBS").value or None), kept, Counts())
    build_options = BuildOptions(
        cache_folder=kept.root,
        cache_layers=kept.layers,
        tune=options.tune,  # type: ignore[arg-type]
        frozen=settings.read("AOTC_FROZEN").value,
        skip=frozenset(settings.read("AOTC_SKIP").value),
    )
    skip = build_options.skip | INEXACT if options.round_intermediates else build_options.skip
    dump = settings.read("AOTC_DUMP").value
    try:
        target = find_target(options.target).with_precision(options.dot_precision)
        with clock.stage("rewrite"):
            clock.dump("capture", print_graph(graph, with_sources=True))
            rewritten, _ = rewrite(graph, target.traits, skip, apply_registered)
            clock.dump("rewrite", print_graph(rewritten))
        parts = (target, [rewritten], build_options, own, clock)
        compiled = compile_for(*parts, blocks=blocks, has_few_ranges=True)
    finally:
        if dump is not None:
            write_texts(Path(dump) / f"graph-{counting().graphs}", clock.texts)
        counting().kernels_compiled += own.counts.compiled
        counting().kernels_cached += own.counts.cache_hits
    return _files(graph, sizes, compiled)


def _files(graph: Graph, sizes: Sizes, compiled: Compiled) -> Files:
    """A bundle of one target, all its files in one folder."""
    types = signature(graph, sizes.dims, sizes.guards)
    types = replace(types, outputs=(*types.outputs, *(each.spec for each in compiled.scratch)))
    target = compiled.target
    plan, library = files_of(compiled.plan, compiled.library)
    files = {PLAN_NAME: plan, LIBRARY_NAME: library}
    backends = _backends(compiled, files)
    entries = tuple(_entry(name, data) for name, data in files.items())
    weights = contents.weights(compiled.constants, compiled.plan)
    if weights:
        files[WEIGHTS_NAME] = b"".join(map(bytes, tensor_file(weights)))
    abi = PLAN_ABI
    row = Target(target.name, target.device, abi, compiled.needs, PLAN_NAME, LIBRARY_NAME)
    manifest = Manifest.made(
        targets=(row,),
        entries=(types.entry(MAIN),),
        weights=_weights_entry(files),
        files=entries,
        backends=backends,
    )
    return {**files, MANIFEST_NAME: manifest.to_bytes()}


def _backends(compiled: Compiled, files: Files) -> tuple[BackendEntry, ...]:
    """The native libraries that the plan calls; adds each to the files."""
    rows = []
    for each in contents.backends([compiled.plan], is_embedded=True):
        name = f"lib{each.entry.name}.so"
        files[name] = each.library or b""
        rows.append(BackendEntry(each.entry.name, each.entry.version, each.entry.sha256, name))
    return tuple(rows)


def _entry(name: str, data: bytes) -> FileEntry:
    return FileEntry(name, len(data), hashlib.sha256(data).digest())


def _weights_entry(files: Mapping[str, bytes]) -> WeightsEntry | None:
    data = files.get(WEIGHTS_NAME)
    if data is None:
        return None
    starts = range(0, len(data), CHUNK_BYTES)
    digests = tuple(hashlib.sha256(data[start : start + CHUNK_BYTES]).digest() for start in starts)
    return WeightsEntry(WEIGHTS_NAME, len(data), CHUNK_BYTES, digests)
