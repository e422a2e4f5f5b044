"""Push and pull over a registry that fails: what arrives is the bundle, or nothing, with a typed
error; what was transferred is not transferred again."""

import base64
import contextlib
import errno
import hashlib
import json
import os
import random
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from fake_registry import cut, flip, hang_up, lose_upload, status, take_part
from small_bundle import names, snapshot

from aotc.aot.distribution import chunked, registry
from aotc.aot.distribution.exchange import pull_bundle
from aotc.aot.distribution.reference import read_reference
from aotc.runtime import load
from aotc.runtime.errors import AotcError
from aotc.runtime.trust.trust import Policy

LARGE = 9 << 20


def weights_digest(bundle):
    return "sha256:" + hashlib.sha256((bundle / "weights.safetensors").read_bytes()).hexdigest()


def left_beside(out):
    return sorted(name for name in names(out.parent) if name.startswith(f".{out.name}."))


def refusal(call, *arguments, **options):
    with pytest.raises(Exception) as caught:  # noqa: PT011  # the caller compares its code
        call(*arguments, **options)
    return caught.value


def test_there_and_back(way, push, pull, bundle, fake, tmp_path):
    sent = push()
    assert sent.reference == f"{fake.host}/team/model@{sent.digest}"
    report = pull(f"@{sent.digest}")
    out = tmp_path / "out"
    assert snapshot(out) == snapshot(bundle)
    assert {file.stat().st_mode & 0o777 for file in out.rglob("*") if file.is_file()} == {0o444}
    assert (report.digest, report.bundle) == (sent.digest, sent.bundle)
    assert report.fetched_bytes == report.nbytes == sent.nbytes
    assert left_beside(out) == []
    load(out).close()
    assert refusal(pull).code == "output-exists"
    pull(force=True)


def test_the_manifest_is_a_model_of_the_cncf_s(push, fake):
    image = json.loads(fake.manifests[push().digest])
    assert image["artifactType"] == "application/vnd.cncf.model.manifest.v1+json"
    assert image["config"]["mediaType"] == "application/vnd.cncf.model.config.v1+json"
    by_name = {row["annotations"]["org.cncf.model.filepath"]: row for row in image["layers"]}
    assert by_name["weights.safetensors"]["mediaType"] == "application/vnd.cncf.model.weight.v1.raw"
    assert all(
        row["annotations"]["org.opencontainers.image.title"] == n for n, row in by_name.items()
    )
    config = json.loads(fake.blobs[image["config"]["digest"]])
    assert config["modelfs"]["diffIds"] == [row["digest"] for row in image["layers"]]
    assert set(config) == {"descriptor", "config", "modelfs"}


def test_what_is_there_is_not_sent_again(push, fake):
    first = push()
    fake.log.clear()
    again = push("v2")
    assert again.sent_bytes == 0
    assert again.digest == first.digest
    assert fake.asked("POST") == []


def test_downloads_go_on_where_they_were_cut_off(way, push, pull, bundle, fake, tmp_path):
    push()
    for _ in range(3):
        fake.fault("GET", weights_digest(bundle), cut(1_500_000))
    pull()
    assert snapshot(tmp_path / "out") == snapshot(bundle)
    assert fake.sent_bytes < LARGE + (2 << 20)  # not again from the beginning


def test_the_next_pull_goes_on(way, push, pull, bundle, fake, tmp_path):
    push()
    fake.fault("GET", weights_digest(bundle), cut(100_000), always=True)
    error = refusal(pull, jobs=1)
    assert (error.code, error.exit_code) == ("registry-failed", 7)
    assert "cut off" in str(error)
    assert not (tmp_path / "out").exists()
    assert len(left_beside(tmp_path / "out")) == 1
    fake.faults.clear()
    fake.fault("GET", weights_digest(bundle), hang_up)
    whole = pull()
    assert whole.fetched_bytes < whole.nbytes
    assert snapshot(tmp_path / "out") == snapshot(bundle)
    assert left_beside(tmp_path / "out") == []


def arrived(folder):
    """Bytes of the weights that a pull has on disk."""
    files = [*folder.glob(".out.partial-*/weights.safetensors")]
    return sum(file.stat().st_blocks * 512 for file in files)


def test_a_pull_that_is_killed_goes_on(push, pull, bundle, fake, tmp_path):
    push()
    reached, go_on = threading.Event(), threading.Event()

    def stall(handler):
        data = fake.blobs[weights_digest(bundle)]
        handler.answer(200, data[: 6 << 20], content_length=str(len(data)))
        reached.set()
        return go_on.wait(60)

    fake.fault("GET", weights_digest(bundle), stall, always=True)
    arguments = ["pull", f"{fake.host}/team/model:v1", "-o", str(tmp_path / "out"), "--jobs", "1"]
    code = f"from aotc.aot.cli.program import run; run({arguments!r})"
    child = subprocess.Popen([sys.executable, "-c", code])
    assert reached.wait(60)
    while arrived(tmp_path) < 5 << 20:
        assert child.poll() is None
        time.sleep(0.01)
    child.kill()
    child.wait()
    go_on.set()
    assert not (tmp_path / "out").exists()
    fake.faults.clear()
    report = pull()
    assert report.nbytes - report.fetched_bytes >= 4 << 20
    assert snapshot(tmp_path / "out") == snapshot(bundle)
    assert left_beside(tmp_path / "out") == []


def test_what_an_earlier_pull_left_is_checked(push, pull, bundle, fake, tmp_path):
    push()
    fake.fault("GET", weights_digest(bundle), hang_up, always=True)
    refusal(pull)
    fake.faults.clear()
    partial = tmp_path / left_beside(tmp_path / "out")[0]
    for file in [*partial.rglob("*")]:
        if file.is_file():
            file.chmod(0o644)
            file.write_bytes(b"\1" * file.stat().st_size)
    pull()
    assert snapshot(tmp_path / "out") == snapshot(bundle)


def test_a_partial_folder_that_others_may_write_is_not_used(push, pull, bundle, fake, tmp_path):
    digest = push().digest
    (tmp_path / f".out.partial-{digest[7:23]}").mkdir()
    (tmp_path / f".out.partial-{digest[7:23]}").chmod(0o777)
    pull()
    assert snapshot(tmp_path / "out") == snapshot(bundle)
    assert len(left_beside(tmp_path / "out")) == 1


def test_wrong_bytes_are_fetched_again(way, push, pull, bundle, fake, tmp_path):
    push()
    fake.fault("GET", weights_digest(bundle), flip(70_000))
    fake.fault("GET", "blobs", flip(20))
    report = pull(jobs=1)
    assert snapshot(tmp_path / "out") == snapshot(bundle)
    assert report.nbytes < report.fetched_bytes < report.nbytes + (10 << 20)


@pytest.mark.parametrize("name", ["weights.safetensors", "manifest.msgpack", "sources/copy.py"])
def test_bytes_that_are_always_wrong(way, push, pull, bundle, fake, tmp_path, name):
    push()
    digest = "sha256:" + hashlib.sha256((bundle / name).read_bytes()).hexdigest()
    fake.fault("GET", digest, flip(3), always=True)
    error = refusal(pull)
    assert (error.code, error.exit_code) == ("image-altered", 6)
    assert name in str(error)
    assert names(tmp_path) == []


def test_a_registry_without_ranges(way, push, pull, bundle, fake, tmp_path):
    push()
    fake.has_ranges = False
    pull()
    fake.fault("GET", weights_digest(bundle), cut(6 << 20))
    pull(force=True)
    assert snapshot(tmp_path / "out") == snapshot(bundle)


@pytest.mark.parametrize("fault", [status(500), status(503, retry_after="0"), status(429), hang_up])
def test_failures_that_pass(push, pull, bundle, fake, tmp_path, fault):
    fake.fault("HEAD", "blobs", fault)
    fake.fault("POST", "uploads", fault)
    fake.fault("PUT", "uploads", fault)
    fake.fault("PUT", "manifests", fault)
    push()
    fake.fault("GET", "manifests", fault)
    fake.fault("GET", "blobs", fault)
    pull()
    assert fake.faults == []
    assert snapshot(tmp_path / "out") == snapshot(bundle)


def test_failures_that_stay(push, pull, fake, tmp_path):
    push()
    fake.fault("GET", "manifests", status(500), always=True)
    error = refusal(pull)
    assert (error.code, error.exit_code) == ("registry-failed", 7)
    assert len(fake.asked("GET", "manifests")) == 5
    fake.fault("PUT", "manifests", status(500), always=True)
    assert refusal(push, "v2").code == "registry-failed"
    assert "v2" not in fake.manifests
    assert refusal(pull, ":nothing").code == "registry-failed"
    fake.faults.clear()
    error = refusal(pull, ":nothing")
    assert (error.code, error.exit_code) == ("registry-missing", 7)
    assert names(tmp_path) == []


def test_a_registry_that_is_not_there(pull, fake):
    fake.close()
    assert refusal(pull).code == "registry-failed"


FULL = """
import sys
from pathlib import Path
from robustness.disk import mount
from aotc.aot.distribution import chunked, pulling
from aotc.aot.distribution.exchange import pull_bundle
from aotc.runtime.errors import AotcError
from aotc.runtime.trust.trust import Policy

folder, reference, is_mapped = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "True"
try:
    mount(folder)  # 8 MiB
except OSError:
    raise SystemExit("no mount")
pulling._check_room = lambda *_: None
chunked.MANY_PROCESSORS = 1 if is_mapped else 1 << 30
try:
    pull_bundle(reference, folder / "out", Policy((), None))
except AotcError as error:
    print(error.code, error.exit_code, [path.name for path in folder.iterdir()])
"""


@pytest.mark.parametrize("is_mapped", [True, False])
def test_a_disk_that_fills_up(push, fake, tmp_path, is_mapped):
    push()
    tests = Path(__file__).parents[1]
    search = os.pathsep.join(map(str, (tests, tests / "pack", tests.parent)))
    ran = subprocess.run(
        [sys.executable, "-c", FULL, tmp_path, f"{fake.host}/team/model:v1", str(is_mapped)],
        env={**os.environ, "PYTHONPATH": search},
        capture_output=True,
        text=True,
        check=False,
    )
    if "no mount" in ran.stderr:
        pytest.skip("this user may not mount a tmpfs here")
    assert ran.stdout == "disk-full 7 []\n", ran.stderr


def test_a_file_system_that_maps_no_files(push, pull, bundle, fake, tmp_path, monkeypatch):
    push()

    def refuse(*_arguments, **_named):
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

    monkeypatch.setattr(chunked.mmap, "mmap", refuse)
    fake.fault("GET", weights_digest(bundle), flip(70_000))
    pull()
    monkeypatch.undo()
    assert snapshot(tmp_path / "out") == snapshot(bundle)


def test_a_system_that_makes_no_pages_on_request(push, pull, bundle, tmp_path, monkeypatch):
    push()
    monkeypatch.setattr(chunked, "POPULATE_WRITE", 999)
    pull()
    assert snapshot(tmp_path / "out") == snapshot(bundle)


def test_another_range_than_asked_for(push, pull, bundle, fake, tmp_path):
    push()
    shifted = {"content_range": "bytes 1-9/9999999", "content_length": "9"}
    fake.fault(
        "GET",
        weights_digest(bundle),
        lambda handler: handler.answer(206, b"123456789", **shifted) or True,
        always=True,
    )
    error = refusal(pull)
    assert error.code == "registry-failed"
    assert "another range" in str(error)


def test_a_registry_that_is_silent(push, pull, fake, monkeypatch):
    push()
    monkeypatch.setattr(registry, "TIMEOUT_S", 0.2)
    fake.fault("GET", "manifests", lambda handler: time.sleep(1), always=True)
    error = refusal(pull)
    assert error.code == "registry-failed"
    assert "no answer within" in str(error)


def trickle(handler):
    """A byte now and then: no wait is long, and there is no end."""
    for _ in handler.go_on_for(5):
        handler.wfile.write(b"x")
    return True


def continue_without_end(handler):
    for _ in handler.go_on_for(5, pause_s=0.001):
        handler.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    return True


def trailers_without_end(handler):
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")
    for _ in handler.go_on_for(5, pause_s=0.001):
        handler.wfile.write(b"a: b\r\n")
    return True


def body_by_bytes(handler):
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n")
    return trickle(handler)


@pytest.mark.parametrize(
    "fault", [trickle, continue_without_end, trailers_without_end, body_by_bytes]
)
@pytest.mark.parametrize("what", ["manifests", "weights"])
def test_an_answer_that_never_ends(push, pull, bundle, fake, monkeypatch, tmp_path, fault, what):
    push()
    monkeypatch.setattr(registry, "TIMEOUT_S", 0.1)
    monkeypatch.setattr(registry, "ATTEMPTS", 2)
    part = weights_digest(bundle) if what == "weights" else what
    fake.fault("GET", part, fault, always=True)
    assert refusal(pull).code == "registry-failed"
    assert not fake.was_waited_for


def test_a_certificate_that_nobody_vouches_for(tmp_path, monkeypatch):
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    pem, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    name = ["-subj", "/CN=x", "-addext", "subjectAltName=DNS:registry.localhost"]
    made = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", *name, "-keyout", key, "-out", pem]
    subprocess.run([openssl, *made], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, key)
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        with contextlib.suppress(OSError):
            while True:
                peer, _ = listener.accept()
                with (
                    contextlib.suppress(OSError),
                    context.wrap_socket(peer, server_side=True) as tls,
                ):
                    tls.recv(4096)
                    tls.sendall(b"HTTP/1.1 404 no\r\nContent-Length: 0\r\n\r\n")

    threading.Thread(target=serve, daemon=True).start()
    port = listener.getsockname()[1]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: [(2, 1, 6, "", ("127.0.0.1", port))])
    reference = read_reference(f"registry.localhost:{port}/a")

    def get():
        with registry.Registry(reference, None) as opened:
            return opened.read("GET", opened.url("manifests/v1"), 10)

    error = refusal(get)
    assert error.code == "registry-failed"
    assert "TLS" in str(error)
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    assert refusal(get).code == "registry-missing"  # vouched for: it answers
    listener.close()


def test_answers_of_random_bytes(monkeypatch, tmp_path):
    """Whatever a server sends is a typed error."""
    rng = random.Random(3)
    parts = [
        b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 206 x\r\n", b"HTTP/1.1 307 x\r\n", b"HTTP/1.1 401 x\r\n",
        b"Location: http://[\r\n", b"Location: /v2/\xff\r\n", b"Content-Length: -1\r\n",
        b"Content-Length: 99\r\n", b"Content-Length: x\r\n", b"Transfer-Encoding: chunked\r\n",
        b"WWW-Authenticate: Bearer realm=\"http://\xe9/\"\r\n", b"Retry-After: 0\r\n", b"\r\n",
        b"zz\r\n", b"5\r\nhello\r\n", b"{}", b"[" * 99, b"x" * 70000, b"\0" * 9,
    ]  # fmt: skip
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        with contextlib.suppress(OSError):
            while True:
                peer, _ = listener.accept()
                with contextlib.suppress(OSError), peer:
                    peer.recv(4096)
                    peer.sendall(b"".join(rng.choices(parts, k=rng.randint(0, 6))))

    threading.Thread(target=serve, daemon=True).start()
    monkeypatch.setattr(registry, "TIMEOUT_S", 0.5)
    monkeypatch.setattr(registry, "ATTEMPTS", 1)
    reference = f"127.0.0.1:{listener.getsockname()[1]}/a:v1"
    for _ in range(150):
        error = refusal(pull_bundle, reference, tmp_path / "out", Policy((), None))
        assert isinstance(error, AotcError), error
        assert error.exit_code in (6, 7), error
    listener.close()
    assert names(tmp_path) == []


def test_uploads_go_on_where_they_were_cut_off(push, fake, bundle):
    fake.fault("PATCH", "uploads", take_part(1_000_000))
    fake.fault("PATCH", "uploads", status(500))
    report = push(jobs=1)
    assert fake.blobs[weights_digest(bundle)] == (bundle / "weights.safetensors").read_bytes()
    assert report.sent_bytes < report.nbytes + (9 << 20)


@pytest.mark.parametrize("location", ["", "file:///tmp/x", "http://[::1", "http://a:b/"])
def test_uploads_that_lead_nowhere(push, fake, location):
    fake.fault(
        "POST",
        "uploads",
        lambda handler: handler.answer(202, location=location) or True,
        always=True,
    )
    assert refusal(push).code == "registry-failed"


@pytest.mark.parametrize(
    "challenge",
    ["", "Bearer", "Basic realm=x", 'Bearer realm="http://[::1"', 'Bearer realm="file:///x"', "Ä"],
)
def test_challenges_that_lead_nowhere(pull, push, fake, challenge):
    push()
    fake.fault("GET", "manifests", status(401, www_authenticate=challenge), always=True)
    assert refusal(pull).code == "registry-denied"


def test_uploads_that_are_lost_begin_again(push, fake, bundle):
    fake.fault("PATCH", "uploads", lose_upload)
    fake.fault("PUT", "uploads", lose_upload)
    push(jobs=1)
    assert weights_digest(bundle) in fake.blobs


def write_config(tmp_path, fake, password):
    (tmp_path / "docker").mkdir(exist_ok=True)
    auth = base64.b64encode(f"user:{password}".encode()).decode()
    (tmp_path / "docker" / "config.json").write_text(
        json.dumps({"auths": {fake.host: {"auth": auth}}})
    )


def test_sign_in(push, pull, bundle, fake, tmp_path):
    fake.password, fake.token = "pa55word", "tok3n"
    error = refusal(push)
    assert (error.code, error.exit_code) == ("registry-denied", 7)
    write_config(tmp_path, fake, "wrong-pa55")
    error = refusal(push)
    assert error.code == "registry-denied"
    assert "pa55" not in str(error) + repr(error) + str(error.as_map())
    write_config(tmp_path, fake, "pa55word")
    push()
    pull()
    assert snapshot(tmp_path / "out") == snapshot(bundle)
    # It ends while it is in use.
    fake.fault("GET", weights_digest(bundle), lambda handler: setattr(fake, "token", "another"))
    pull(force=True)


def test_blobs_from_elsewhere_get_no_credentials(push, pull, bundle, fake, tmp_path):
    fake.password, fake.token = "pa55word", "tok3n"
    write_config(tmp_path, fake, "pa55word")
    push()
    fake.blob_host = fake.host.replace("127.0.0.1", "localhost")  # another origin
    fake.log.clear()
    pull()
    assert snapshot(tmp_path / "out") == snapshot(bundle)
    elsewhere = fake.headers("/elsewhere")
    assert elsewhere
    assert not [headers for headers in elsewhere if "Authorization" in headers]
    fake.fault("GET", "/elsewhere", status(403), always=True)
    error = refusal(pull, force=True)
    assert error.code == "registry-denied"
    assert "secret" not in str(error)  # the query of a redirect is one


def test_redirects_that_are_refused(push, pull, fake):
    push()
    for location in ("file:///etc/passwd", "", "ftp://a.b/c", "http://[::1", "http://a:99999/"):
        fake.fault(
            "GET", "blobs", lambda handler, to=location: handler.fail(307, location=to), always=True
        )
        assert refusal(pull).exit_code == 7
        fake.faults.clear()
    fake.fault(
        "GET", "blobs", lambda handler: handler.fail(302, location=handler.path), always=True
    )
    error = refusal(pull)
    assert error.code == "registry-failed"
    from aotc.aot.distribution.registry import Registry

    with pytest.raises(Exception, match="a redirect to http"):
        Registry.join(None, "GET", "https://a.b/c", "http://a.b/c")


def test_a_pinned_digest(push, pull, fake, tmp_path):
    sent = push()
    pinned = f"@{sent.digest}"
    fake.manifests[sent.digest] = fake.manifests[sent.digest] + b" "
    error = refusal(pull, pinned)
    assert (error.code, error.exit_code) == ("image-altered", 6)
    error = refusal(pull, digest="sha256:" + "0" * 64)
    assert error.exit_code == 6
    assert names(tmp_path) == []


def put_manifest(fake, tag, change):
    tree = json.loads(fake.manifests[tag])
    other = change(tree)  # most change the tree itself
    fake.manifests["bad"] = json.dumps(other if isinstance(other, list | str) else tree).encode()


def note(layer, name):
    layer["annotations"] = {"org.cncf.model.filepath": name}


@pytest.mark.parametrize(
    "change",
    [
        lambda tree: tree["layers"].pop(0),
        lambda tree: tree["layers"].pop(),
        lambda tree: tree["layers"].append(tree["layers"][0]),
        lambda tree: note(tree["layers"][3], "../../etc/passwd"),
        lambda tree: note(tree["layers"][3], "/etc/passwd"),
        lambda tree: note(tree["layers"][3], "a/.ssh"),
        lambda tree: note(tree["layers"][3], "other"),
        lambda tree: tree["layers"][3].pop("annotations"),
        lambda tree: tree["layers"][3].update(mediaType="application/vnd.oci.image.layer.v1.tar"),
        lambda tree: tree["layers"][3].update(digest="sha256:" + "0" * 64),
        lambda tree: tree["layers"][3].update(digest="sha512:" + "0" * 128),
        lambda tree: tree["layers"][3].update(digest="sha256:../../../../../../etc/passwd"),
        lambda tree: tree["layers"][3].update(size=-1),
        lambda tree: tree["layers"][3].update(size=1 << 50),
        lambda tree: tree["layers"][3].update(size=True),
        lambda tree: tree["layers"][0].update(size=1 << 40),
        lambda tree: tree.update(schemaVersion=1),
        lambda tree: tree.update(mediaType="application/vnd.oci.image.index.v1+json"),
        lambda tree: tree.update(layers=[]),
        lambda tree: tree.update(config=None),
        lambda tree: tree.pop("layers") and None,
        lambda tree: [],
        lambda tree: "x" * (5 << 20),
    ],
)
def test_images_that_are_no_bundle(push, pull, fake, tmp_path, change):
    push()
    put_manifest(fake, "v1", change)
    fake.log.clear()
    error = refusal(pull, ":bad")
    assert error.exit_code in (6, 7), error
    assert error.code in ("image-invalid", "image-altered", "registry-failed", "registry-missing")
    assert names(tmp_path) == []
    assert fake.sent_bytes < LARGE


def test_an_unsigned_or_revoked_image_is_not_fetched(push, pull, bundle, fake, keys, tmp_path):
    sent = push()
    error = refusal(pull, keys=[keys[1]])
    assert (error.code, error.exit_code) == ("signature-missing", 6)
    (tmp_path / "revoked").write_text(sent.bundle)
    assert refusal(pull, revoked=tmp_path / "revoked").code == "bundle-revoked"
    assert fake.asked("GET", weights_digest(bundle)) == []
    assert names(tmp_path) == ["revoked"]


def test_a_signature_travels(push, pull, bundle, keys, tmp_path):
    from aotc.aot.distribution.signing import sign

    signed = tmp_path / "signed"
    shutil.copytree(bundle, signed)
    unsigned = push("unsigned")
    sign(signed, keys[0])
    assert push(source=signed).sent_bytes < 4096  # the rest is there
    report = pull(keys=[keys[1]])
    assert report.digest != unsigned.digest
    assert report.bundle == unsigned.bundle
    load(tmp_path / "out", trusted_keys=[keys[1]]).close()


def test_two_pulls_at_once(push, pull, bundle, tmp_path):
    push()
    results = []

    def call():
        try:
            results.append(pull().bundle)
        except Exception as error:
            results.append(error.code)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert snapshot(tmp_path / "out") == snapshot(bundle)
    assert {each for each in results if len(each) < 64} <= {"output-exists"}
    assert left_beside(tmp_path / "out") == []


def test_a_disk_that_is_too_small(push, pull, fake, tmp_path, monkeypatch):
    push()
    state = os.statvfs(tmp_path)
    values = {name: getattr(state, name) for name in ("f_frsize", "f_bavail")} | {"f_bavail": 7}
    monkeypatch.setattr(os, "statvfs", lambda _: type("State", (), values))
    error = refusal(pull)
    assert (error.code, error.exit_code) == ("disk-full", 7)
    assert names(tmp_path) == []


def test_commands(aotc, bundle, fake, tmp_path):
    reference = f"{fake.host}/team/model:v1"
    code, out, errors = aotc("push", bundle, reference, "--json", "--quiet")
    assert code == 0, errors
    pushed = json.loads(out)
    assert pushed["schema"] == "aotc.push/1"
    code, out, errors = aotc("pull", reference, "-o", tmp_path / "out", "--json", "--quiet")
    assert code == 0, errors
    assert json.loads(out)["bundle"] == pushed["bundle"]
    assert aotc("pull", "nowhere", "-o", tmp_path / "other")[0] == 2
    assert aotc("push", tmp_path / "absent", reference)[0] == 2
