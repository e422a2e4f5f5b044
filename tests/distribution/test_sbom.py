"""The bill of materials: valid SPDX, the same bytes each time, nothing of the machine."""

import getpass
import hashlib
import json
import re
import shutil
import socket
from pathlib import Path

import pytest
import small_bundle

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def built(spec, cache, tmp_path_factory):
    """The tiny model for the CPU and a GPU, built by a test of its own folder's name."""
    from aotc.aot.cli.program import run

    out = tmp_path_factory.mktemp("built") / "tiny"
    arguments = ["build", spec, "-o", out, "--target", "cpu", "--target", "cuda:sm_90", "--quiet"]
    assert run([*map(str, arguments), "--cache-dir", str(cache)]) == 0
    return out


def bill(aotc, path):
    code, out, errors = aotc("sbom", path)
    assert code == 0, errors
    return out


def test_what_made_a_bundle(aotc, built, spec, tmp_path):
    text = bill(aotc, built)
    tree = json.loads(text)
    packages = {each["name"]: each for each in tree["packages"]}
    assert {"aotc", "torch", "triton", "ptxas"} <= set(packages)
    assert re.match(r"\d+\.\d+", packages["ptxas"]["versionInfo"])
    digests = {each["SPDXID"]: each.get("checksums") for each in tree["packages"]}
    model = hashlib.sha256(spec.read_bytes()).hexdigest()
    assert digests["SPDXRef-Model"] == [{"algorithm": "SHA256", "checksumValue": model}]
    digest = json.loads(aotc("inspect", built, "--json")[1])["digest"]
    assert digests["SPDXRef-Bundle"] == [{"algorithm": "SHA256", "checksumValue": digest}]
    assert tree["documentNamespace"].endswith(digest)
    copy = tmp_path / "elsewhere"
    shutil.copytree(built, copy)
    assert bill(aotc, copy) == text
    for private in (getpass.getuser(), socket.gethostname(), str(Path.cwd()), str(spec.parent)):
        assert f'"{private}' not in text
        assert len(private) < 6 or private not in text


def test_it_is_valid_spdx(aotc, built, tmp_path):
    parse = pytest.importorskip("spdx_tools.spdx.parser.parse_anything", reason="no `spdx-tools`")
    from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

    (tmp_path / "bill.spdx.json").write_text(bill(aotc, built))
    document = parse.parse_file(str(tmp_path / "bill.spdx.json"))
    assert [each.validation_message for each in validate_full_spdx_document(document)] == []
    kinds = {each.relationship_type.name for each in document.relationships}
    assert kinds == {"DESCRIBES", "GENERATED_FROM", "BUILD_TOOL_OF"}


def test_a_bundle_that_does_not_say(aotc, tmp_path):
    small_bundle.write(tmp_path / "small")  # its provenance is empty
    code, _, errors = aotc("sbom", tmp_path / "small")
    assert code == 2
    assert "expected the facts of a build" in errors
    assert aotc("sbom", tmp_path / "absent")[0] == 2
