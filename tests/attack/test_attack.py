"""The attacks on our caches and on safetensors, a few of each; `scripts/attack` runs them all."""

import pytest

from . import trial
from .attempts import ATTEMPTS, Bench, run
from .page import cell
from .systems import Cache, RemoteCache, SafeTensors
from .trial import CRASHED, HUNG, USED, digest_of

CONSISTENT = "the same, all digests and checksums beside it made right"


def columns(system, scratch):
    made = (scratch / "right", scratch / "other")
    for variant, folder in enumerate(made):
        folder.mkdir(mode=0o700)
        system.make(folder, variant)
    first = Bench(system, made, "", scratch)
    honest = digest_of(lambda: system.use(first.copy()))
    return dict(run(Bench(system, made, honest, scratch, scale=0.05)))


@pytest.mark.parametrize("system", [Cache(), RemoteCache()], ids=lambda system: system.name)
def test_altered_bytes_of_a_cache_are_never_used(system, tmp_path):
    found = columns(system, tmp_path)
    assert found.keys() == ATTEMPTS.keys()
    for row, outcomes in found.items():
        kinds = {kind for kind, _ in outcomes or ()}
        # Who may write the owner's folder and rewrites the digests too is the owner.
        allowed = {USED} if row == CONSISTENT and type(system) is Cache else set()
        assert kinds & {USED, CRASHED, HUNG} == allowed, f"{row}: {cell(outcomes)}"


def test_an_attack_can_succeed(tmp_path, monkeypatch):
    """A format that claims nothing of altered numbers shows that the attacks reach their aim."""
    pytest.importorskip("safetensors")
    monkeypatch.setattr(trial, "SECONDS", 1)  # it waits for ever for a pipe
    found = columns(SafeTensors(), tmp_path)
    assert found["one bit of the weights"][USED, ""] > 0
    assert found["one bit of the code"] is None
