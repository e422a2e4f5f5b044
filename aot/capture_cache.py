"""`cached_capture`: a spec's capture from the artifact cache, if all it depends on is unchanged.

torch.export is most of a build that compiles nothing. An entry is found by the fingerprint of the
model, its code and its example, and is used only after the model has given the same numbers.
"""

from __future__ import annotations

from aotc.aot.capture.cache_entry import FACTS, GRAPH, from_files, to_files
from aotc.aot.capture.capture import Captured, capture
from aotc.aot.capture.custom_ops import custom_digests
from aotc.aot.capture.dependencies import user_modules
from aotc.aot.capture.fingerprint import fingerprint
from aotc.aot.capture.spec import Spec
from aotc.cache import Key, Store
from aotc.runtime.bundle.manifest import MAIN


def cached_capture(
    spec: Spec, store: Store, fallback: bool = False, rounds: bool = False
) -> tuple[Captured, bool]:
    """The spec's model as `capture` gives it, and whether the cache knew it.

    Raises what `capture` raises.
    """
    digests = fingerprint(spec) if spec.entry == MAIN else None  # methods have no fingerprint yet
    if digests is None:
        return capture(spec, fallback, rounds), False
    key = Key.of("captures", fallback=fallback, rounds=rounds, native=custom_digests(), **digests)
    entry = store.get(key, (frozenset({GRAPH, FACTS}),))
    if entry is not None:
        found = from_files(entry.files, spec)
        if found is not None:
            return found, True
    modules = user_modules()
    captured = capture(spec, fallback, rounds)
    if entry is None and user_modules() == modules:  # else there is code without a digest
        files = to_files(captured, spec)
        if files is not None:
            store.put(key, files)
    return captured, False
