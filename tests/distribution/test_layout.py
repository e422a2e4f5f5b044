"""Bundles in OCI image layouts on disk: loaded where they lie, checked as in a directory."""

import errno
import hashlib
import json
import os
import random
import re
import shutil
import threading
from pathlib import Path

import pytest
import small_bundle

from aotc.aot.distribution.exchange import pull_bundle, push_bundle
from aotc.runtime import check, load
from aotc.runtime.bundle.layout import TAG
from aotc.runtime.errors import AotcError, BundleNotFound, EnvironmentFault
from aotc.runtime.trust.trust import Policy
from aotc.runtime.verify import verify

NOBODY = Policy((), None)


@pytest.fixture
def layout(tmp_path, bundle):
    """A layout with the bundle as `v1`; its path."""
    push_bundle(bundle, f"oci-layout:{tmp_path}/layout:v1")
    return tmp_path / "layout"


def manifest_of(layout, tag="v1"):
    rows = json.loads((layout / "index.json").read_bytes())["manifests"]
    row = next(row for row in rows if row.get("annotations", {}).get(TAG) == tag)
    return layout / "blobs" / row["digest"].replace(":", "/")


def code_of(reference):
    with pytest.raises(AotcError) as caught:
        load(reference)
    return caught.value.code


def test_load_by_tag_by_digest_and_alone(layout, bundle):
    digest = manifest_of(layout).name
    with load(bundle) as program:
        expected = program(bytes(24))
    for tail in (":v1", f"@sha256:{digest}", ""):
        with load(f"oci-layout:{layout}{tail}") as program:
            assert [bytes(each) for each in program(bytes(24))] == [bytes(e) for e in expected]
    assert check(f"oci-layout:{layout}") == []
    assert {each.status for each in verify(f"oci-layout:{layout}")} == {"ok"}
    for tail in (":v2", "@sha256:" + "0" * 64):
        assert code_of(f"oci-layout:{layout}{tail}") == "bundle-not-found"


def test_weights_are_mapped_from_their_blob(layout, bundle):
    name = hashlib.sha256((bundle / "weights.safetensors").read_bytes()).hexdigest()
    with load(f"oci-layout:{layout}:v1"):
        assert f"{layout}/blobs/sha256/{name}" in Path("/proc/self/maps").read_text()


def test_layers_are_the_files(layout, bundle):
    image = json.loads(manifest_of(layout).read_bytes())
    for layer in image["layers"]:
        file = bundle / layer["annotations"]["org.cncf.model.filepath"]
        blob = layout / "blobs" / layer["digest"].replace(":", "/")
        assert blob.read_bytes() == file.read_bytes()
        assert layer["size"] == file.stat().st_size
        assert hashlib.sha256(file.read_bytes()).hexdigest() == blob.name
    assert json.loads((layout / "oci-layout").read_bytes()) == {"imageLayoutVersion": "1.0.0"}
    assert not list(layout.rglob("*.staging"))


def test_several_bundles_share_a_layout(layout, bundle, tmp_path):
    small_bundle.write(tmp_path / "small")
    push_bundle(tmp_path / "small", f"oci-layout:{layout}:small")
    push_bundle(bundle, f"oci-layout:{layout}:again")
    assert code_of(f"oci-layout:{layout}") == "bundle-not-found"  # which one?
    for tag, path in (("v1", bundle), ("small", tmp_path / "small"), ("again", bundle)):
        with load(f"oci-layout:{layout}:{tag}") as one, load(path) as other:
            assert one.digest == other.digest
    push_bundle(tmp_path / "small", f"oci-layout:{layout}:v1")  # the tag moves
    with load(f"oci-layout:{layout}:v1") as one, load(tmp_path / "small") as other:
        assert one.digest == other.digest
    rows = json.loads((layout / "index.json").read_bytes())["manifests"]
    assert len(rows) == 3


def test_there_and_back(layout, bundle, tmp_path):
    report = pull_bundle(f"oci-layout:{layout}:v1", tmp_path / "out", NOBODY)
    assert small_bundle.snapshot(tmp_path / "out") == small_bundle.snapshot(bundle)
    assert report.digest == f"sha256:{manifest_of(layout).name}"
    again = push_bundle(f"oci-layout:{layout}:v1", f"oci-layout:{tmp_path}/copy:v1")
    assert again.digest == report.digest


def test_a_signature_is_asked_for_in_a_layout_too(bundle, keys, tmp_path):
    from aotc.aot.distribution.signing import sign

    push_bundle(bundle, f"oci-layout:{tmp_path}/layout:unsigned")
    signed = tmp_path / "signed"
    shutil.copytree(bundle, signed)
    sign(signed, keys[0])
    push_bundle(signed, f"oci-layout:{tmp_path}/layout:signed")
    load(f"oci-layout:{tmp_path}/layout:signed", trusted_keys=[keys[1]]).close()
    with pytest.raises(AotcError) as caught:
        load(f"oci-layout:{tmp_path}/layout:unsigned", trusted_keys=[keys[1]])
    assert caught.value.code == "signature-missing"


def test_every_damaged_blob_is_refused(layout):
    for blob in sorted((layout / "blobs" / "sha256").iterdir()):
        data = blob.read_bytes()
        is_config = b'"modelfs"' in data
        blob.chmod(0o644)
        for altered in (data[:-1], data + b"x", bytes([data[0] ^ 1]) + data[1:], None):
            blob.unlink() if altered is None else blob.write_bytes(altered)
            failed = [each for each in verify(f"oci-layout:{layout}") if each.status == "failed"]
            is_extra = altered is None and not failed  # an extra may be deleted
            assert failed or is_config or is_extra
            assert all(re.fullmatch("[a-z-]+", each.code) for each in failed)
        blob.write_bytes(data)
    load(f"oci-layout:{layout}").close()


def test_links_and_pipes_are_refused(layout, tmp_path):
    for name in ("index.json", "oci-layout"):
        shutil.move(layout / name, tmp_path / name)
        (layout / name).symlink_to(tmp_path / name)
        assert code_of(f"oci-layout:{layout}") == "bundle-file-refused"
        (layout / name).unlink()
        os.mkfifo(layout / name)
        assert code_of(f"oci-layout:{layout}") == "bundle-file-refused"
        (layout / name).unlink()
        shutil.move(tmp_path / name, layout / name)
    manifest = manifest_of(layout)
    shutil.move(manifest, tmp_path / "manifest")
    manifest.symlink_to(tmp_path / "manifest")
    assert code_of(f"oci-layout:{layout}") == "bundle-file-refused"


def test_what_is_no_layout(tmp_path, bundle):
    assert code_of(f"oci-layout:{tmp_path}/absent") == "bundle-not-found"
    assert code_of(f"oci-layout:{bundle}") == "bundle-not-found"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(AotcError) as caught:
        push_bundle(bundle, f"oci-layout:{tmp_path}/other:v1")
    assert caught.value.code == "layout-foreign"
    assert small_bundle.names(tmp_path / "other") == ["notes.txt"]


def test_a_write_that_fails_leaves_the_layout_as_it_was(layout, tmp_path, monkeypatch):
    """At each call that puts a file into place; what a killed writer left goes with the next."""
    small_bundle.write(tmp_path / "small")
    index = (layout / "index.json").read_bytes()
    replace, calls = os.replace, []

    def fail_at(place):
        def failing(source, target):
            calls.append(target)
            if len(calls) == place:
                raise OSError(errno.EIO, "Input/output error", target)
            replace(source, target)

        return failing

    place = 0
    while True:
        place += 1
        calls.clear()
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", fail_at(place))
            try:
                push_bundle(tmp_path / "small", f"oci-layout:{layout}:small")
                break
            except AotcError as error:
                assert error.exit_code == 7  # noqa: PT017
        assert (layout / "index.json").read_bytes() == index
        load(f"oci-layout:{layout}:v1").close()
        (layout / "blobs" / "sha256" / f"{place}.staging").write_text("left")
    assert place > 3
    load(f"oci-layout:{layout}:small").close()
    assert not list(layout.rglob("*.staging"))


def test_random_changes_of_index_and_manifest(layout):
    """With the digests made right again, so that the reader's own rules are what refuses."""
    rng = random.Random(7)
    index_text = (layout / "index.json").read_bytes()
    manifest_text = manifest_of(layout).read_bytes()
    values = [None, -1, 1 << 60, "", "x", [], {}, True, "sha256:" + "0" * 64, "../x", [[]]]

    def damage(tree):
        place = tree
        while True:
            keys = list(place) if isinstance(place, dict) else range(len(place))
            if not keys:
                return
            key = rng.choice(list(keys))
            if isinstance(place[key], dict | list) and rng.random() < 0.8:
                place = place[key]
                continue
            place[key] = rng.choice(values)
            return

    for _ in range(300):
        index, manifest = json.loads(index_text), json.loads(manifest_text)
        for _ in range(rng.randint(1, 3)):
            damage(rng.choice((index, manifest)))
        data = json.dumps(manifest).encode()
        if data != json.dumps(json.loads(manifest_text)).encode():
            digest = hashlib.sha256(data).hexdigest()
            (layout / "blobs" / "sha256" / digest).write_bytes(data)
            for row in index["manifests"] if isinstance(index.get("manifests"), list) else []:
                if isinstance(row, dict):
                    row |= {"digest": f"sha256:{digest}", "size": len(data)}
        (layout / "index.json").write_text(json.dumps(index))
        try:
            load(f"oci-layout:{layout}").close()
        except AotcError as error:
            assert error.exit_code in (2, 6), error  # noqa: PT017


def test_references():
    from aotc.runtime.bundle.layout import split_reference

    digest = "sha256:" + "0" * 64
    assert split_reference("oci-layout:/a/b") == ("/a/b", None, None)
    assert split_reference("oci-layout:/a/b:v1") == ("/a/b", "v1", None)
    assert split_reference(f"oci-layout:/a/b@{digest}") == ("/a/b", None, digest)
    assert split_reference("oci-layout:/a:b/c") == ("/a:b/c", None, None)
    assert split_reference("oci-layout:a@b:v1") == ("a@b", "v1", None)
    with pytest.raises(BundleNotFound):
        load("oci-layout:")


def test_a_system_that_starts_no_more_threads(layout, tmp_path, monkeypatch):
    def refuse(*_arguments, **_named):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading, "_start_new_thread", refuse)
    with pytest.raises(EnvironmentFault, match="cannot start `a thread`: can't start new thread"):
        pull_bundle(f"oci-layout:{layout}:v1", tmp_path / "out", NOBODY)
    assert {path.name for path in tmp_path.iterdir()} == {"layout"}


@pytest.mark.parametrize("change", ["fifo", "link", "blobs"])
def test_a_layout_that_leads_elsewhere_is_not_written(layout, bundle, tmp_path, change):
    place = layout / ("blobs" if change == "blobs" else "index.json")
    place.rename(tmp_path / "elsewhere")
    if change == "fifo":
        os.mkfifo(place)
    else:
        place.symlink_to(tmp_path / "elsewhere")
    before = sorted((tmp_path / "elsewhere").rglob("*"))
    with pytest.raises(AotcError) as caught:
        push_bundle(bundle, f"oci-layout:{layout}:v2")
    assert caught.value.code in ("layout-foreign", "environment")
    assert sorted((tmp_path / "elsewhere").rglob("*")) == before
