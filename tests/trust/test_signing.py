"""Signing and checking bundles: each way in which a signature does not count has its own error,
and nothing of the bundle is used before."""

import base64
import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import small_bundle

from aotc.runtime import load
from aotc.runtime.bundle.manifest import MANIFEST_NAME
from aotc.runtime.errors import EnvironmentFault
from aotc.runtime.verify import verify

NAME = "signature.dsse.json"


def sign(bundle, key, **options):
    from aotc.aot.distribution.signing import sign

    return sign(bundle, key, **options)


def write_envelope(bundle, key, payload, kind="application/vnd.in-toto+json", keyid=None):
    """An envelope over any payload, signed as it is."""
    from aotc.aot.distribution.signing import envelope_bytes
    from aotc.runtime.trust.envelope import Envelope, Signature
    from aotc.runtime.trust.keys import keyid_of, read_private_key

    private = read_private_key(key)
    if not isinstance(payload, bytes):
        payload = json.dumps(payload).encode()
    empty = Envelope(kind, payload, ())
    hint = keyid_of(private.public_key()) if keyid is None else keyid
    signatures = (Signature(hint, private.sign(empty.signed)),)
    (bundle / NAME).unlink(missing_ok=True)
    (bundle / NAME).write_bytes(envelope_bytes(empty.replace(signatures=signatures)))


def statement_of(bundle):
    tree = json.loads((bundle / NAME).read_bytes())
    return json.loads(base64.b64decode(tree["payload"]))


OPENED = []
sys.addaudithook(
    lambda event, arguments: OPENED.append(str(arguments[0])) if event == "open" else None
)


def refusal(bundle, *keys, **options):
    """The error of a load that trusts the keys, which opens no code and no weights."""
    OPENED.clear()
    with pytest.raises(Exception) as caught:  # noqa: PT011  # the caller compares its code
        load(bundle, trusted_keys=list(keys), **options)
    assert not [name for name in OPENED if name.endswith((".so", ".safetensors", "plan.msgpack"))]
    return caught.value


def test_a_signed_bundle_loads(bundle, keys):
    report = sign(bundle, keys.alice)
    data = (bundle / MANIFEST_NAME).read_bytes()
    assert report.digest == data[-32:].hex()
    with load(bundle, trusted_keys=[keys.bob_public, keys.alice_public]) as program:
        assert program.digest == report.digest
    with load(bundle, trusted_keys=[Path(keys.alice_public).read_text()]):  # the key's text
        pass
    found = verify(bundle, trusted_keys=[keys.alice_public])
    assert {each.status for each in found} == {"ok"}
    assert found[0].layer == "signature"
    assert keys.alice_id[:16] in found[0].detail


def test_the_statement_is_in_toto_s(bundle, keys):
    sign(bundle, keys.alice)
    found = statement_of(bundle)
    data = (bundle / MANIFEST_NAME).read_bytes()
    assert found["_type"] == "https://in-toto.io/Statement/v1"
    assert found["subject"] == [
        {"name": "bundle", "digest": {"sha256": hashlib.sha256(data[:-32]).hexdigest()}},
        {"name": "manifest.msgpack", "digest": {"sha256": hashlib.sha256(data).hexdigest()}},
    ]


def test_signing_is_deterministic_and_adds_signatures(bundle, keys, tmp_path):
    other = tmp_path / "elsewhere" / "copy"
    shutil.copytree(bundle, other)
    sign(bundle, keys.alice)
    first = (bundle / NAME).read_bytes()
    assert sign(bundle, keys.alice).signatures == 1
    assert (bundle / NAME).read_bytes() == first
    sign(other, keys.alice)
    assert (other / NAME).read_bytes() == first
    assert sign(bundle, keys.bob).signatures == 2
    for key in (keys.alice_public, keys.bob_public):
        load(bundle, trusted_keys=[key]).close()


def test_signatures_that_nobody_checks_are_said(bundle, keys):
    assert [each for each in verify(bundle) if each.layer == "signature"] == []
    sign(bundle, keys.alice)
    found = verify(bundle)[0]
    assert (found.layer, found.status) == ("signature", "absent")
    assert "no key is trusted" in found.detail


def test_a_signature_that_cannot_be_written(bundle, keys, monkeypatch):
    sign(bundle, keys.alice)
    before = small_bundle.snapshot(bundle)

    def read_only(*_):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "replace", read_only)
    with pytest.raises(EnvironmentFault) as caught:
        sign(bundle, keys.bob)
    assert (caught.value.code, caught.value.exit_code) == ("permission", 7)
    assert small_bundle.snapshot(bundle) == before


def test_people_who_sign_at_once(bundle, tmp_path):
    pytest.importorskip("cryptography", reason="the extra `signing` is not installed")
    from concurrent.futures import ThreadPoolExecutor

    from aotc.aot.distribution.signing import make_keys

    made = [make_keys(str(tmp_path / f"key{index}")) for index in range(6)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda pair: sign(bundle, pair[0]), made))
    for _, public, _ in made:
        load(bundle, trusted_keys=[public]).close()
    assert not [name for name in small_bundle.names(bundle) if name.endswith(".staging")]


def test_tune_asks_too(aotc, bundle, keys, tmp_path, monkeypatch):
    monkeypatch.setenv("AOTC_TRUSTED_KEYS", keys.alice_public)
    monkeypatch.setenv("AOTC_CACHE_DIR", str(tmp_path / "cache"))
    code, _, errors = aotc("tune", bundle, "-o", tmp_path / "tuned", "--quiet")
    assert code == 6
    assert "expected a signature" in errors


def test_an_envelope_elsewhere(bundle, keys, tmp_path):
    report = sign(bundle, keys.alice, out=tmp_path / "out.json")
    assert not (bundle / NAME).exists()
    shutil.copy(report.path, bundle / NAME)
    load(bundle, trusted_keys=[keys.alice_public]).close()
    with pytest.raises(Exception, match="expected a bundle's directory"):
        sign("oci-layout:/anywhere", keys.alice)


def test_unsigned(bundle, keys):
    error = refusal(bundle, keys.alice_public)
    assert (error.code, error.exit_code) == ("signature-missing", 6)


def test_another_key(bundle, keys):
    sign(bundle, keys.alice)
    error = refusal(bundle, keys.bob_public)
    assert (error.code, error.exit_code) == ("signature-untrusted", 6)
    assert keys.alice_id[:16] in str(error)
    assert keys.bob_id[:16] in str(error)


def test_a_key_id_makes_no_key_trusted(bundle, keys):
    sign(bundle, keys.bob)
    payload = statement_of(bundle)
    write_envelope(bundle, keys.bob, payload, keyid=keys.alice_id)
    assert refusal(bundle, keys.alice_public).code == "signature-invalid"
    write_envelope(bundle, keys.bob, payload, keyid="")
    assert refusal(bundle, keys.alice_public).code == "signature-untrusted"
    load(bundle, trusted_keys=[keys.bob_public]).close()


def test_every_altered_letter_of_an_envelope_is_refused(bundle, keys):
    """But for letters of the key id, which is a hint."""
    from aotc.runtime.trust.keys import read_public_key
    from aotc.runtime.trust.trust import check_envelope

    digest = sign(bundle, keys.alice).digest
    data = (bundle / NAME).read_bytes()
    trusted = [read_public_key(keys.alice_public)]
    assert check_envelope(data, digest, trusted, NAME) == tuple(trusted)
    hint = data.index(keys.alice_id.encode())
    codes = set()
    for place in range(len(data) - 1):
        altered = bytearray(data)
        altered[place] ^= 1
        if hint - 10 <= place <= hint + 64:
            continue
        with pytest.raises(Exception) as caught:  # noqa: PT011  # the codes are compared below
            check_envelope(bytes(altered), digest, trusted, NAME)
        codes.add(caught.value.code)
    assert codes == {"signature-malformed", "signature-invalid"}


def test_an_altered_payload(bundle, keys):
    sign(bundle, keys.alice)
    tree = json.loads((bundle / NAME).read_bytes())
    payload = base64.b64decode(tree["payload"]).replace(b"null", b"cuda")
    (bundle / NAME).chmod(0o644)
    tree["payload"] = base64.b64encode(payload).decode()
    (bundle / NAME).write_text(json.dumps(tree))
    error = refusal(bundle, keys.alice_public)
    assert (error.code, error.exit_code) == ("signature-invalid", 6)


def test_another_payload_type(bundle, keys):
    sign(bundle, keys.alice)
    write_envelope(bundle, keys.alice, statement_of(bundle), kind="application/json")
    error = refusal(bundle, keys.alice_public)
    assert (error.code, error.exit_code) == ("signature-payload-type", 6)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"_type": "https://in-toto.io/Statement/v0.1"}, "signature-statement"),
        ({"predicateType": "https://in-toto.io/attestation/release/v0.1"}, "signature-statement"),
        ({"subject": []}, "signature-statement"),
        ({"subject": [{"name": "x", "digest": {"sha512": "0" * 128}}]}, "signature-statement"),
        ({"subject": [{"name": "bundle", "digest": {"sha256": "0" * 64}}]}, "signature-subject"),
    ],
)
def test_another_statement_by_a_trusted_key(bundle, keys, changes, code):
    sign(bundle, keys.alice)
    write_envelope(bundle, keys.alice, statement_of(bundle) | changes)
    error = refusal(bundle, keys.alice_public)
    assert (error.code, error.exit_code) == (code, 6)


def test_the_signature_of_another_bundle(bundle, keys, tmp_path):
    other = tmp_path / "other"
    small_bundle.write(other, value=2.0)
    sign(other, keys.alice)
    shutil.copy(other / NAME, bundle / NAME)
    error = refusal(bundle, keys.alice_public)
    assert (error.code, error.exit_code) == ("signature-subject", 6)
    from aotc.aot.distribution.errors import SignatureOther

    with pytest.raises(SignatureOther):
        sign(bundle, keys.bob)
    sign(bundle, keys.bob, force=True)
    assert refusal(bundle, keys.alice_public).code == "signature-untrusted"


@pytest.mark.parametrize("kind", ["folder", "link", "fifo"])
def test_an_envelope_that_is_no_file(bundle, keys, kind):
    sign(bundle, keys.alice, out=bundle.parent / "real.json")
    if kind == "folder":
        (bundle / NAME).mkdir()
    elif kind == "link":
        (bundle / NAME).symlink_to(bundle.parent / "real.json")
    else:
        os.mkfifo(bundle / NAME)
    assert refusal(bundle, keys.alice_public).exit_code in (6, 7)


def test_revoked(bundle, keys, tmp_path, monkeypatch):
    digest = sign(bundle, keys.alice).digest
    listed = tmp_path / "revoked.txt"
    listed.write_text(f"# withdrawn\n{'0' * 64}\n\nsha256:{digest.upper()}  # wrong numbers\n")
    error = refusal(bundle, keys.alice_public, revoked=listed)
    assert (error.code, error.exit_code, error.line) == ("bundle-revoked", 6, 4)
    with pytest.raises(Exception, match="revokes"):  # without a key, too
        load(bundle, revoked=listed)
    monkeypatch.setenv("AOTC_REVOKED", str(listed))
    with pytest.raises(Exception, match="revokes"):
        load(bundle)
    listed.write_text("0" * 64)
    load(bundle).close()
    for text, code in (
        (b"7", "revocation-list-invalid"),
        (b"\xff" * 64, "revocation-list-invalid"),
    ):
        listed.write_bytes(text)
        assert refusal(bundle, keys.alice_public, revoked=listed).code == code
    listed.unlink()
    assert refusal(bundle, keys.alice_public, revoked=listed).exit_code == 7


def test_settings(bundle, keys, monkeypatch):
    from aotc.runtime.errors import SettingInvalid
    from aotc.runtime.trust.errors import TrustedKeysMissing

    monkeypatch.setenv("AOTC_REQUIRE_SIGNATURE", "1")
    with pytest.raises(TrustedKeysMissing):
        load(bundle)
    monkeypatch.setenv("AOTC_TRUSTED_KEYS", f"{keys.bob_public}:{keys.alice_public}")
    assert_code(bundle, "signature-missing")
    sign(bundle, keys.alice)
    load(bundle).close()
    monkeypatch.delenv("AOTC_REQUIRE_SIGNATURE")
    monkeypatch.setenv("AOTC_TRUSTED_KEYS", keys.bob_public)
    assert_code(bundle, "signature-untrusted")
    load(bundle, trusted_keys=[keys.alice_public]).close()
    with pytest.raises(TrustedKeysMissing):
        load(bundle, trusted_keys=[])
    with pytest.raises(SettingInvalid):
        load(bundle, trusted_keys=keys.alice_public)
    monkeypatch.setenv("AOTC_TRUSTED_KEYS", "key.pem")
    with pytest.raises(SettingInvalid):
        load(bundle)


def assert_code(bundle, code):
    with pytest.raises(Exception) as caught:  # noqa: PT011  # its code is compared
        load(bundle)
    assert caught.value.code == code


@pytest.mark.parametrize("kind", ["private", "ec", "text", "absent"])
def test_what_is_no_public_key(bundle, keys, tmp_path, kind):
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    path = tmp_path / "key.pem"
    if kind == "private":
        shutil.copy(keys.alice, path)
    elif kind == "ec":
        public = ec.generate_private_key(ec.SECP256R1()).public_key()
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        path.write_bytes(public.public_bytes(serialization.Encoding.PEM, form))
    elif kind == "text":
        path.write_text("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n")
    error = refusal(bundle, path)
    assert (error.code, error.exit_code) == (
        ("environment", 7) if kind == "absent" else ("key-invalid", 2)
    )


def test_a_damaged_bundle_is_not_signed(bundle, keys):
    (bundle / "sources" / "copy.py").write_text("# another kernel\n")
    from aotc.aot.distribution.errors import BundleUnsound

    with pytest.raises(BundleUnsound, match=r"sources/copy\.py"):
        sign(bundle, keys.alice)
    assert not (bundle / NAME).exists()


def test_without_the_extra(bundle):
    code = (
        "import sys; sys.modules['cryptography'] = None\n"
        "from aotc.aot.cli.program import run\n"
        f"print(run(['verify', {str(bundle)!r}, '--key', '/etc/hostname']))\n"
        f"print(run(['sign', {str(bundle)!r}, '--key', '/etc/hostname']))\n"
        "print(run(['keygen', '/tmp/never-written']))\n"
        "import aotc.runtime.trust.trust as trust\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.stdout.split() == ["7", "7", "7"], ran.stderr
    assert ran.stderr.count('pip install "aotc[signing]"') == 3


def test_commands(aotc, bundle, tmp_path):
    pytest.importorskip("cryptography", reason="the extra `signing` is not installed")
    name = tmp_path / "pair"
    assert aotc("keygen", name)[0] == 0
    assert (tmp_path / "pair.pem").stat().st_mode & 0o777 == 0o600
    assert aotc("keygen", name)[0] == 2
    public = f"{name}.pub.pem"
    assert aotc("verify", bundle, "--signature", "--key", public)[0] == 6
    code, out, errors = aotc("sign", bundle, "--key", f"{name}.pem", "--json")
    assert code == 0, errors
    assert json.loads(out)["schema"] == "aotc.sign/1"
    code, out, _ = aotc("verify", bundle, "--key", public, "--golden")
    assert code == 0
    code, out, _ = aotc("verify", bundle, "--key", public)
    assert code == 0
    assert "signed by key" in out
    assert aotc("verify", bundle, "--signature")[0] == 2
    listed = tmp_path / "revoked"
    listed.write_text(json.loads(aotc("inspect", bundle, "--json")[1])["digest"])
    code, out, _ = aotc("verify", bundle, "--key", public, "--revoked", listed)
    assert code == 6
    assert "revokes" in out
    assert "golden" not in out


def test_keys_of_openssl(bundle, tmp_path):
    pytest.importorskip("cryptography", reason="the extra `signing` is not installed")
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    private, public = tmp_path / "k.pem", tmp_path / "k.pub.pem"

    def call(*arguments):
        subprocess.run([openssl, *map(str, arguments)], check=True, capture_output=True)

    call("genpkey", "-algorithm", "ed25519", "-out", private)
    call("pkey", "-in", private, "-pubout", "-out", public)
    sign(bundle, private)
    load(bundle, trusted_keys=[public]).close()
    call("pkey", "-in", private, "-aes256", "-passout", "pass:x", "-out", tmp_path / "locked.pem")
    with pytest.raises(Exception, match="passphrase"):
        sign(bundle, tmp_path / "locked.pem")


def test_securesystemslib_reads_our_envelopes(bundle, keys):
    dsse = pytest.importorskip("securesystemslib.dsse", reason="securesystemslib is not installed")
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from securesystemslib.signer import SSlibKey

    sign(bundle, keys.alice)
    public = load_pem_public_key(Path(keys.alice_public).read_bytes())
    key = SSlibKey.from_crypto(public, keyid=keys.alice_id)
    envelope = dsse.Envelope.from_dict(json.loads((bundle / NAME).read_bytes()))
    assert list(envelope.verify([key], 1)) == [keys.alice_id]
    assert json.loads(envelope.payload)["predicateType"] == "urn:aotc:bundle:v1"
