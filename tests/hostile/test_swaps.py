"""A load of a bundle that is being replaced is of the old one or of the new one."""

import subprocess
import sys
from pathlib import Path

import pytest
import small_bundle

from aotc.runtime import load
from aotc.runtime.bundle.opened import ATTEMPTS, read_bundle
from aotc.runtime.errors import BundleFileMissing, BundleNotFound, BundleReplaced
from aotc.runtime.extras import read_golden


def swapped(folder, count, *options):
    script = Path(__file__).with_name("swaps.py")
    command = [sys.executable, str(script), str(folder), str(count), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("options", [(), ("fallback",)], ids=["exchange", "two renames"])
def test_loads_beside_a_writer(tmp_path, options):
    ran = swapped(tmp_path, 150, *options)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.nightly
@pytest.mark.parametrize("options", [(), ("fallback",)], ids=["exchange", "two renames"])
def test_5000_loads_beside_a_writer(tmp_path, options):
    ran = swapped(tmp_path, 5000, *options)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_read_begins_again_with_the_new_bundle(bundle):
    old, seen = load(bundle).digest, []

    def work(opened):
        seen.append(opened.digest)
        if len(seen) == 1:
            small_bundle.write(bundle, value=2.0, force=True)  # which deletes the old one
        return opened.read("targets/null/plan.msgpack"), opened.digest

    _, digest = read_bundle(bundle, work)
    assert seen == [old, digest]
    assert digest == load(bundle).digest != old


def test_a_digest_that_was_asked_for_holds_for_the_new_bundle_too(bundle):
    from aotc.runtime.errors import DigestMismatch

    old = load(bundle).digest

    def work(opened):
        small_bundle.write(bundle, value=2.0, force=True)
        return opened.read("targets/null/plan.msgpack")

    with pytest.raises(DigestMismatch):
        read_bundle(bundle, work, old)
    with pytest.raises(DigestMismatch):
        read_golden(bundle, old)


def test_a_bundle_that_never_stands_still_is_no_damage(bundle):
    seen = []

    def work(opened):
        seen.append(opened.digest)
        small_bundle.write(bundle, value=float(len(seen)), force=True)
        return opened.read("targets/null/plan.msgpack")

    with pytest.raises(BundleReplaced) as raised:
        read_bundle(bundle, work)
    assert raised.value.exit_code == 7
    assert "copy" not in str(raised.value)
    assert len(seen) == ATTEMPTS


def test_a_file_that_is_missing_for_good_is_damage(bundle):
    (bundle / "targets/null/plan.msgpack").unlink()
    with pytest.raises(BundleFileMissing):
        load(bundle)


def test_between_two_renames_the_old_bundle_is_read(bundle):
    digest = load(bundle).digest
    bundle.rename(bundle.parent / ".bundle.previous-0011aabb")
    assert load(bundle).digest == digest
    (bundle.parent / ".bundle.previous-0011aabb").rename(bundle.parent / "away")
    with pytest.raises(BundleNotFound):
        load(bundle)
