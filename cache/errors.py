"""The cache's errors, in the form of the runtime's: code, exit code, template, hint.

The cache imports nothing of aotc, so the form is repeated here instead of shared; the command
line's printer needs only `str()`, `code` and `exit_code`.
"""

from __future__ import annotations

from typing import ClassVar


class CacheWarning(UserWarning):
    """An entry was damaged, or the cache cannot be written; the build goes on without it."""


class CacheError(Exception):
    """The cache's folder cannot be used; exit 7. A damaged entry is never an error, but a miss."""

    code: ClassVar[str] = "cache"
    exit_code: ClassVar[int] = 7
    template: ClassVar[str] = "{message}"
    hint: ClassVar[str] = ""

    def __init__(self, **fields: str) -> None:
        self.fields = fields
        self.message = self.template.format(**fields)
        self.hint_text = self.hint.format(**fields)
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint_text}" if self.hint_text else self.message


class CacheUnsafe(CacheError):
    """Somebody else could write the cache's folder, and what is in it becomes machine code."""

    code = "cache-unsafe"
    template = "cache folder `{path}` is {found}, expected a folder that only its owner can write"
    hint = "run `chmod go-w {path}`, or choose another folder with `--cache-dir`"


class CacheNotAFolder(CacheError):
    """The cache's path is taken by something else."""

    code = "cache-not-a-folder"
    template = "cache path `{path}` is not a folder"
    hint = "choose another folder with `--cache-dir`"


class CacheUnreadable(CacheError):
    """A folder of the cache cannot be listed."""

    code = "cache-unreadable"
    template = "cache folder `{path}` cannot be read ({reason})"
    hint = "look at its owner and mode and at the disk, or choose another folder with `--cache-dir`"


class BucketUnknown(CacheError):
    """A key names a bucket that the store does not have: a programming error."""

    code = "cache-bucket-unknown"
    template = "no cache bucket is called `{bucket}`, expected one of: {known}"
    hint = "`aotc cache ls` shows the kind of each entry"


class RemoteCacheAddressInvalid(CacheError):
    """The address of the remote cache, or of the proxy before it, cannot be used."""

    code = "remote-cache-address"
    template = "remote cache is {found}, expected `http://host:port/path` or `https://…`"
    hint = "credentials go to AOTC_REMOTE_CACHE_TOKEN or a file, not into the address"


class RemoteCacheSecretInvalid(CacheError):
    """The token or key of the remote cache cannot be used as it is; its value is never shown."""

    code = "remote-cache-secret"
    template = "{what} of the remote cache: {found}"
    hint = (
        "a token is printable text, sent over https or to this machine; a key has 32 bytes or "
        "more (docs/remote-cache.md)"
    )


class RemoteCacheKeyMissing(CacheError):
    """A remote cache without a key: anybody who can write there would choose the machine code."""

    code = "remote-cache-key"
    template = "remote cache `{url}` has no key to authenticate its records with"
    hint = (
        "name a file with AOTC_REMOTE_CACHE_KEY_FILE, or accept records of anybody who can write "
        "to the server with AOTC_REMOTE_CACHE_AUTHENTICATION=none"
    )


class ArchiveInvalid(CacheError):
    """A file is not an archive that `aotc cache export` wrote; nothing of it was used."""

    code = "cache-archive"
    exit_code = 6
    template = "`{path}` is not a cache archive: {found}"
    hint = "write it again with `aotc cache export`; nothing was imported"


class CacheNotWritable(CacheError):
    """An entry of an archive could not be kept: a full disk, a folder that can only be read."""

    code = "cache-not-writable"
    template = "cache folder `{path}` cannot be written, after {added} entries were added"
    hint = "the entries that were added are complete; run the same import again for the others"


class ArchiveTaken(CacheError):
    """`aotc cache export` was to write where a file is."""

    code = "cache-archive-taken"
    exit_code = 2
    template = "`{path}` exists already"
    hint = "choose another path, or replace the file with `--force`"
