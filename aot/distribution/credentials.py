"""User and password of a registry, from the `config.json` that `docker login` writes.

Read are `auths`, and credential helpers (`credHelpers`, `credsStore`), programs named
`docker-credential-NAME`. What is read is sent to the registry or to the place that it names for
tokens, and appears in no message.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from aotc.aot.distribution.errors import CredentialsInvalid
from aotc.runtime import settings

LIMIT_BYTES = 1 << 20
HELPER_TIMEOUT_S = 30.0
HELPER = re.compile(r"[A-Za-z0-9._-]{1,64}")
DOCKER_HUB = "https://index.docker.io/v1/"


def find_credentials(host: str) -> tuple[str, str] | None:
    """User and password for a registry's host with its port, or None where none are kept.

    Raises `CredentialsInvalid`.
    """
    place = _config_file()
    try:
        data = place.read_bytes()[: LIMIT_BYTES + 1]
    except FileNotFoundError:
        return None
    except OSError as error:
        found = (error.strerror or "unreadable").lower()
        raise CredentialsInvalid(path=str(place), found=found) from None
    try:
        config = json.loads(data)
        names = [host, f"https://{host}", f"https://{host}/v1/", f"https://{host}/v2/"]
        names += [DOCKER_HUB] if host == "docker.io" else []
        helpers = config.get("credHelpers") or {}
        helper = next((helpers[name] for name in names if name in helpers), None)
        auths = config.get("auths") or {}
        row = next((auths[name] for name in names if auths.get(name)), None)
        if row is not None:
            return _of_row(row)
        helper = helper or config.get("credsStore")
    except (ValueError, AttributeError, TypeError, RecursionError):
        raise CredentialsInvalid(path=str(place), found="not understood") from None
    return None if helper is None else _of_helper(str(helper), host, str(place))


def _config_file() -> Path:
    folder = settings.read("DOCKER_CONFIG").value
    return Path(folder or os.path.expanduser("~/.docker")) / "config.json"  # noqa: PTH111


def _of_row(row: dict[str, Any]) -> tuple[str, str] | None:
    if row.get("auth"):
        try:
            text = base64.b64decode(row["auth"], validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            raise ValueError("auth") from None
        user, _, password = text.partition(":")
        return user, password.rstrip("\0")
    if row.get("username"):
        return str(row["username"]), str(row.get("password", ""))
    return None


def _of_helper(helper: str, host: str, path: str) -> tuple[str, str] | None:
    """What the program `docker-credential-HELPER` knows of the host."""
    program = shutil.which(f"docker-credential-{helper}") if HELPER.fullmatch(helper) else None
    if program is None:
        raise CredentialsInvalid(path=path, found=f"a helper that is not installed ({helper!r})")
    server = DOCKER_HUB if host == "docker.io" else host
    try:
        ran = subprocess.run(
            [program, "get"],
            input=server.encode(),
            capture_output=True,
            timeout=HELPER_TIMEOUT_S,
            check=False,
        )
        if ran.returncode:  # it knows nothing of this host
            return None
        found = json.loads(ran.stdout[:LIMIT_BYTES])
        return str(found["Username"]), str(found["Secret"])
    except (OSError, ValueError, KeyError, TypeError, subprocess.TimeoutExpired):
        raise CredentialsInvalid(path=path, found=f"a helper that fails ({helper!r})") from None
