"""Another tool reads and writes the same layouts: Debian's `skopeo`."""

import json
import shutil
import subprocess

import pytest
import small_bundle

from aotc.aot.distribution.exchange import push_bundle
from aotc.runtime import load

PROGRAM = shutil.which("skopeo")
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="`skopeo` is not installed")


def test_a_copy_by_skopeo_is_the_same_image(tmp_path):
    small_bundle.write(tmp_path / "small")
    sent = push_bundle(tmp_path / "small", f"oci-layout:{tmp_path}/ours:v1")
    command = [PROGRAM, "--insecure-policy"]
    read = subprocess.run(
        [*command, "inspect", "--raw", f"oci:{tmp_path}/ours:v1"], capture_output=True, check=True
    )
    assert json.loads(read.stdout)["artifactType"].startswith("application/vnd.cncf.model.")
    copy = [*command, "copy", f"oci:{tmp_path}/ours:v1", f"oci:{tmp_path}/theirs:v1"]
    subprocess.run(copy, capture_output=True, check=True)
    load(f"oci-layout:{tmp_path}/theirs@{sent.digest}").close()
