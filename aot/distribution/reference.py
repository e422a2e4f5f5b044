"""References of images: `HOST[:PORT]/REPOSITORY[:TAG][@sha256:DIGEST]`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from aotc.aot.distribution.errors import ReferenceInvalid

# Source: https://github.com/opencontainers/distribution-spec, spec.md, "Pulling manifests".
PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
HOST = r"(?:[A-Za-z0-9.-]+|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?"
REFERENCE = re.compile(
    rf"(?P<host>{HOST})/(?P<repository>{PART}(?:/{PART})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
EXPECTED = "`HOST/NAME:TAG` or `HOST/NAME@sha256:…`, as registry.example.com/team/model:v1"
ALIASES = {"docker.io": "registry-1.docker.io"}


@dataclass(frozen=True, slots=True)
class Reference:
    """An image in a registry. host: with its port; version: tag or digest, the digest if both."""

    host: str
    repository: str
    tag: str | None
    digest: str | None

    @property
    def version(self) -> str:
        """What the manifest is asked for by."""
        return self.digest or self.tag or "latest"

    @property
    def address(self) -> str:
        """The host to connect to."""
        return ALIASES.get(self.host, self.host)

    @property
    def is_loopback(self) -> bool:
        """Whether the registry is on this machine, where plain HTTP is what registries speak."""
        name = self.host.rpartition(":")[0] or self.host
        name = self.host if self.host.endswith("]") else name
        return name in ("localhost", "[::1]") or name.startswith("127.")

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.host}/{self.repository}{tag}{f'@{self.digest}' if self.digest else ''}"


def read_reference(text: str) -> Reference:
    """The parts of a reference; raises `ReferenceInvalid`."""
    found = REFERENCE.fullmatch(text)
    host = found["host"] if found else ""
    port = host.rpartition(":")[2]
    is_host = "." in host or ":" in host or host == "localhost"
    is_port = not port.isdigit() or int(port) < 65536
    if found is None or len(text) > 512 or not is_host or not is_port:
        raise ReferenceInvalid(found=text[:80], expected=EXPECTED)
    return Reference(host, found["repository"], found["tag"], found["digest"])
