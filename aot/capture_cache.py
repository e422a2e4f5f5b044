"""`cached_captures`: captures of specs from the artifact cache, where all that they depend on is
unchanged.

torch.export is most of a build that compiles nothing. An entry is found by the fingerprint of the
model, its code and its example, and is used only after the model has given the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from aotc.aot.capture.cache_entry import FACTS, GRAPH, from_files, to_files
from aotc.aot.capture.capture import Captured, capture
from aotc.aot.capture.custom_ops import custom_digests
from aotc.aot.capture.dependencies import user_modules
from aotc.aot.capture.fingerprint import fingerprints
from aotc.aot.capture.spec import Spec
from aotc.cache import Key, Store


def cached_captures(
    specs: Sequence[Spec], store: Store | None, fallback: bool = False, rounds: bool = False
) -> Iterator[tuple[Captured, bool]]:
    """The model of each spec as `capture` gives it, and whether the cache knew it; it is not asked
    without one.

    All are hashed before any is run: what a run leaves in a model is not in a fingerprint. Raises
    what `capture` raises.
    """
    digests = [None] * len(specs) if store is None else fingerprints(specs)
    modules = user_modules()
    for spec, found in zip(specs, digests, strict=True):
        if store is None or found is None:
            yield capture(spec, fallback, rounds), False
        else:
            yield _cached(spec, found, modules, store, (fallback, rounds))


def _cached(
    spec: Spec,
    digests: Mapping[str, str],
    modules: frozenset[str],
    store: Store,
    settings: tuple[bool, bool],
) -> tuple[Captured, bool]:
    """One spec's; modules: the user's that were loaded when it was hashed."""
    fallback, rounds = settings
    key = Key.of("captures", fallback=fallback, rounds=rounds, native=custom_digests(), **digests)
    entry = store.get(key, (frozenset({GRAPH, FACTS}),))
    if entry is not None:
        found = from_files(entry.files, spec)
        if found is not None:
            return found, True
    captured = capture(spec, fallback, rounds)
    if entry is None and user_modules() == modules:  # else there is code without a digest
        files = to_files(captured, spec)
        if files is not None:
            store.put(key, files)
    return captured, False
