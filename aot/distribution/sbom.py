"""`bill_of_materials`: what made a bundle, as an SPDX 2.3 document in JSON.

It follows from the bundle alone: tools and their versions, the digest of the model's file and of
native libraries, as `provenance.json` and the manifest say. There is no time in it (the date is the
epoch) and no path, user, host or Python, on which no byte of a bundle depends: one bundle has one
bill.

Source: https://spdx.github.io/spdx-spec/v2.3/.
"""

from __future__ import annotations

import json
import os
from typing import Any
from urllib.parse import quote

from aotc.aot.distribution.errors import ProvenanceUnusable
from aotc.runtime.bundle.manifest import Manifest
from aotc.runtime.bundle.opened import Bundle

PROVENANCE = "provenance.json"
LIMIT_BYTES = 64 << 20
NAMESPACE = "https://spdx.org/spdxdocs/aotc-bundle-"
EPOCH = "1970-01-01T00:00:00Z"
DOCUMENT, BUNDLE, MODEL = "SPDXRef-DOCUMENT", "SPDXRef-Bundle", "SPDXRef-Model"
ON_PYPI = ("aotc", "torch", "triton", "numpy")


def bill_of_materials(bundle: str | os.PathLike[str], digest: str | None = None) -> dict[str, Any]:
    """The SPDX document of the bundle at a path, as plain data; `digest`: the one it must have.

    Raises `ProvenanceUnusable` where the bundle does not say what made it, and `BundleError`s.
    """
    with Bundle(bundle, digest) as opened:
        data = opened.read_extra(PROVENANCE)
        facts = _facts(data, opened.where(PROVENANCE))
        return _document(opened.manifest, opened.digest, facts)


def _document(manifest: Manifest, digest: str, facts: dict[str, Any]) -> dict[str, Any]:
    tools = [
        _tool(f"SPDXRef-Tool-{index}", name, version)
        for index, (name, version) in enumerate(sorted(facts["versions"].items()))
    ]
    libraries = [
        _package(f"SPDXRef-Library-{index}", entry.name, entry.version, entry.sha256.hex())
        for index, entry in enumerate(manifest.backends)
    ]
    packages = [_package(BUNDLE, facts["model"], None, digest, "APPLICATION")]
    relations = [(DOCUMENT, "DESCRIBES", BUNDLE)]
    if facts["source_sha256"]:
        packages.append(_package(MODEL, facts["model"], None, facts["source_sha256"], "SOURCE"))
        relations.append((BUNDLE, "GENERATED_FROM", MODEL))
    relations += [(tool["SPDXID"], "BUILD_TOOL_OF", BUNDLE) for tool in tools]
    relations += [(each["SPDXID"], "RUNTIME_DEPENDENCY_OF", BUNDLE) for each in libraries]
    relations += [
        (tool["SPDXID"], "RUNTIME_DEPENDENCY_OF", BUNDLE)
        for tool in tools
        if tool["name"] == "torch" and manifest.torch
    ]
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": DOCUMENT,
        "name": f"aotc-bundle-{digest[:16]}",
        "documentNamespace": f"{NAMESPACE}{digest}",
        "creationInfo": {"created": EPOCH, "creators": [f"Tool: {_creator(manifest)}"]},
        "packages": [*packages, *tools, *libraries],
        "relationships": [
            {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}
            for one, kind, other in relations
        ],
    }


def _creator(manifest: Manifest) -> str:
    """`aotc-0.1.0`, the form that the specification has for tools."""
    return manifest.producer.replace(" ", "-") or "aotc"


def _tool(identifier: str, name: str, version: str) -> dict[str, Any]:
    found = _package(identifier, name, version)
    if name in ON_PYPI:
        locator = f"pkg:pypi/{name}@{quote(version, safe='.')}"
        found["externalRefs"] = [
            {
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": locator,
            }
        ]
    return found


def _package(
    identifier: str,
    name: str,
    version: str | None,
    sha256: str | None = None,
    purpose: str | None = None,
) -> dict[str, Any]:
    found: dict[str, Any] = {"SPDXID": identifier, "name": name}
    if version is not None:
        found["versionInfo"] = version
    found |= {"downloadLocation": "NOASSERTION", "filesAnalyzed": False}
    if sha256 is not None:
        found["checksums"] = [{"algorithm": "SHA256", "checksumValue": sha256}]
    if purpose is not None:
        found["primaryPackagePurpose"] = purpose
    return found


def _facts(data: bytes | None, path: str) -> dict[str, Any]:
    """Model, versions and the model file's digest; raises `ProvenanceUnusable`."""
    if data is None:
        raise ProvenanceUnusable(path=path, found="missing")
    if len(data) > LIMIT_BYTES:
        raise ProvenanceUnusable(path=path, found=f"of {len(data)} bytes")
    try:
        tree = json.loads(data)
        versions = {_plain(name): _plain(text) for name, text in tree["versions"].items()}
        source = tree.get("source") or {}
        return {
            "model": _plain(tree["model"]),
            "versions": versions,
            "source_sha256": _plain(source["sha256"]) if source else None,
        }
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise ProvenanceUnusable(path=path, found="not what a build writes") from None


def _plain(text: Any) -> str:
    """A short printable text; raises ValueError."""
    if not isinstance(text, str) or not text.isprintable() or not 1 <= len(text) <= 256:
        raise ValueError(text)
    return text
