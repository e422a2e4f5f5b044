"""`aotc cache dir|size|ls|clear|explain`: the artifact cache, looked at and emptied."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from aotc.aot.cli import flags
from aotc.aot.cli.printing import bytes_text, print_json, print_table
from aotc.aot.cli.project import cache_folder

if TYPE_CHECKING:
    from aotc.cache import Key, Store
    from aotc.cache.collect import Explanation

_bucket_option = click.option(
    "--bucket", type=click.Choice(["binaries", "tuning"]), help="Only this kind of entry."
)


@click.group("cache")
@click.option("--cache-dir", "folder", metavar="DIR", help="The cache's folder [AOTC_CACHE_DIR].")
@click.pass_context
def command(context: click.Context, folder: str | None) -> None:
    """Show, explain or clear the artifact cache."""
    context.obj = folder


@command.command("dir")
@click.pass_obj
def show_folder(folder: str | None) -> None:
    """Print the cache's folder."""
    click.echo(cache_folder(folder))


@command.command("size")
@flags.as_json
@click.pass_obj
def show_size(folder: str | None, as_json: bool) -> None:
    """Print how many entries there are and their bytes."""
    from aotc.cache.collect import rows

    found = list(rows(_open(folder)))
    total = sum(row.size_bytes for row in found)
    if as_json:
        print_json("aotc.cache.size/1", {"entries": len(found), "bytes": total})
    else:
        click.echo(f"{len(found)} entries, {bytes_text(total)}")


@command.command("ls")
@_bucket_option
@flags.as_json
@click.pass_obj
def list_entries(folder: str | None, bucket: str | None, as_json: bool) -> None:
    """List the entries, the last used first, with the fields of their keys."""
    from aotc.cache.collect import key_record, rows

    found = [row for row in rows(_open(folder)) if not bucket or row.bucket.startswith(bucket)]
    found.sort(key=lambda row: -row.used_s)
    entries = [
        {
            "digest": row.digest,
            "bucket": row.bucket,
            "bytes": row.size_bytes,
            "used": datetime.fromtimestamp(row.used_s, UTC).isoformat(timespec="seconds"),
            "fields": _fields(key_record(row)),
        }
        for row in found
    ]
    if as_json:
        print_json("aotc.cache.ls/1", {"entries": entries})
        return
    table = [
        (
            row.digest[:12],
            row.bucket,
            bytes_text(row.size_bytes),
            _age_text(time.time() - row.used_s),
            _summary(key_record(row)),
        )
        for row in found
    ]
    print_table(("digest", "bucket", "size", "used", "key"), table)


@command.command("clear")
@_bucket_option
@flags.as_json
@click.pass_obj
def clear_entries(folder: str | None, bucket: str | None, as_json: bool) -> None:
    """Delete all entries, or those of one bucket."""
    from aotc.cache.collect import clear

    count = clear(_open(folder), bucket)
    if as_json:
        print_json("aotc.cache.clear/1", {"deleted": count})
    else:
        click.echo(f"{count} entries deleted")


@command.command("explain")
@click.argument("wanted", required=False, metavar="[DIGEST]")
@flags.as_json
@click.pass_obj
def explain_misses(folder: str | None, wanted: str | None, as_json: bool) -> None:
    """Say why the last build missed: the nearest stored key and the fields that differ.

    With the first digits of a DIGEST, only for that key.
    """
    from aotc.cache.collect import explain, last_misses

    store = _open(folder)
    started_s, keys = last_misses(store)
    chosen = [key for key in keys if not wanted or key.digest.startswith(wanted)]
    explanations = [explain(store, key, before_s=started_s) for key in chosen]
    if as_json:
        print_json("aotc.cache.explain/1", {"misses": [_record(item) for item in explanations]})
        return
    if not explanations:
        click.echo("the last build missed nothing")
    for item in explanations:
        _print_explanation(item)


def _open(folder: str | None) -> Store:
    from aotc.cache import Store

    return Store(cache_folder(folder))


def _print_explanation(item: Explanation) -> None:
    click.echo(f"{item.wanted.digest[:12]}  {_summary(item.wanted)}")
    if item.nearest is None:
        click.echo("  nothing like it was stored before")
        return
    click.echo(f"  nearest stored: {item.nearest.digest[:12]}, which differs in")
    for difference in item.differing:
        click.echo(
            f"    {difference.field}: {_short(difference.stored)} → {_short(difference.wanted)}"
        )


def _record(item: Explanation) -> dict[str, Any]:
    return {
        "digest": item.wanted.digest,
        "fields": _fields(item.wanted),
        "nearest": item.nearest.digest if item.nearest else None,
        "differing": [
            {"field": row.field, "stored": row.stored, "wanted": row.wanted}
            for row in item.differing
        ],
    }


def _fields(key: Key | None) -> dict[str, Any] | None:
    return dict(key.fields) if key else None


def _summary(key: Key | None) -> str:
    """The short fields of a key: digests are cut to eight digits."""
    if key is None:
        return "(damaged record)"
    return " ".join(f"{name}={_short(value)}" for name, value in key.fields)


def _short(value: object) -> str:
    text = str(value)
    is_digest = len(text) == 64 and all(letter in "0123456789abcdef" for letter in text)
    return text[:8] if is_digest else text if len(text) <= 40 else text[:39] + "…"


def _age_text(seconds: float) -> str:
    for unit, size_s in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size_s:
            return f"{seconds / size_s:.0f} {unit} ago"
    return "now"
