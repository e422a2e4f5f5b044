"""References of images as users write them, and credentials as Docker's configuration has them."""

import json
import os

import pytest

from aotc.aot.distribution.reference import read_reference
from aotc.runtime.errors import AotcError


def refusal(call, argument):
    with pytest.raises(AotcError) as caught:
        call(argument)
    return caught.value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "model:v1",
        "localhost",
        "localhost/Model",
        "host.example/a//b",
        "host.example/a:v1:v2",
        "host.example/a@sha256:0",
        "https://host.example/a",
        "host.example/a:../b",
        "user@host.example/a",
        "host.example:65536/a",
    ],
)
def test_what_is_no_reference(text):
    assert refusal(read_reference, text).code == "reference-invalid"


def test_references():
    found = read_reference("reg.example:5000/a/b-c_d:v1@sha256:" + "0" * 64)
    assert (found.host, found.repository, found.tag) == ("reg.example:5000", "a/b-c_d", "v1")
    assert found.version == "sha256:" + "0" * 64
    assert [read_reference(each).is_loopback for each in ("localhost/a", "[::1]:5/a", "a.b/c")] == [
        True,
        True,
        False,
    ]


def test_credentials(tmp_path, monkeypatch):
    from aotc.aot.distribution.credentials import find_credentials

    folder = tmp_path / "docker"
    assert find_credentials("a.b") is None
    folder.mkdir()
    config = folder / "config.json"
    helper = tmp_path / "bin" / "docker-credential-test"
    helper.parent.mkdir()
    helper.write_text(
        '#!/bin/sh\nread host\necho "{\\"Username\\":\\"u\\",\\"Secret\\":\\"$host\\"}"\n'
    )
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{helper.parent}:{os.environ['PATH']}")
    config.write_text(json.dumps({"credHelpers": {"a.b": "test"}, "auths": {"a.b": {}}}))
    assert find_credentials("a.b") == ("u", "a.b")
    assert find_credentials("c.d") is None
    for text in ("{", "[]", '{"auths": 3}', '{"auths": {"a.b": {"auth": "ää"}}}'):
        config.write_text(text)
        assert refusal(find_credentials, "a.b").code == "credentials-invalid"
    config.write_text(json.dumps({"credsStore": "../../bin/sh"}))
    assert refusal(find_credentials, "a.b").code == "credentials-invalid"
