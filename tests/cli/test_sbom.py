"""The bill of materials: valid SPDX, the same bytes each time, nothing of the machine."""

import getpass
import hashlib
import json
import re
import shutil
import socket
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[1] / "pack"))

import small_bundle


def bill(aotc, path):
    code, out, errors = aotc("sbom", path)
    assert code == 0, errors
    return out


def test_what_made_a_bundle(aotc, bundle, spec, tmp_path):
    text = bill(aotc, bundle)
    tree = json.loads(text)
    packages = {each["name"]: each for each in tree["packages"]}
    assert {"aotc", "torch", "triton"} <= set(packages)
    assert packages["triton"]["externalRefs"][0]["referenceLocator"].startswith("pkg:pypi/triton@")
    digests = {each["SPDXID"]: each.get("checksums") for each in tree["packages"]}
    model = hashlib.sha256(spec.read_bytes()).hexdigest()
    assert digests["SPDXRef-Model"] == [{"algorithm": "SHA256", "checksumValue": model}]
    digest = json.loads(aotc("inspect", bundle, "--json")[1])["digest"]
    assert digests["SPDXRef-Bundle"] == [{"algorithm": "SHA256", "checksumValue": digest}]
    assert tree["documentNamespace"].endswith(digest)
    copy = tmp_path / "elsewhere"
    shutil.copytree(bundle, copy)
    assert bill(aotc, copy) == text
    for private in (getpass.getuser(), socket.gethostname(), str(Path.cwd()), str(spec.parent)):
        assert f'"{private}' not in text
        assert len(private) < 6 or private not in text


def test_a_gpu_s_bundle_says_which_assembler():
    from aotc.aot.targets.families import tool_versions

    assert "ptxas" not in tool_versions(["cpu"])
    assert re.match(r"\d+\.\d+", tool_versions(["cpu", "cuda"])["ptxas"])


def test_it_is_valid_spdx(aotc, bundle, tmp_path):
    parse = pytest.importorskip("spdx_tools.spdx.parser.parse_anything", reason="no `spdx-tools`")
    from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

    (tmp_path / "bill.spdx.json").write_text(bill(aotc, bundle))
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
