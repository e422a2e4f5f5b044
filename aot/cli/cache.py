"""`aotc cache …`: show, check, limit and move the artifact cache, explain its misses."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aotc.aot.cli.cache_texts import (
    age_text,
    explained,
    explanation_lines,
    fields_of,
    summary,
    target_of,
)
from aotc.aot.cli.printing import bytes_text, print_json, print_table
from aotc.aot.cli.suggesting import FileThatExists, SuggestingGroup
from aotc.aot.printable import printable
from aotc.aot.project import cache_folder, setting
from aotc.cache.keys import BUCKETS
from aotc.runtime.errors import EnvironmentFault
from aotc.runtime.settings import SETTINGS, parse

if TYPE_CHECKING:
    from aotc.cache import Store
    from aotc.cache.collect import Deleted, Explanation, Row

INTEGRITY_EXIT_CODE = 6
UNITS_S = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}


@dataclass(slots=True)
class Given:
    """Options that may stand before the subcommand or after it; those after it win."""

    folder: str | None = None
    as_json: bool = False

    def store(self) -> Store:
        """The cache; raises CacheUnsafe and CacheNotAFolder."""
        from aotc.cache import Store

        return Store(cache_folder(self.folder))


def _set_folder(context: click.Context, option: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.ensure_object(Given).folder = value


def _set_json(context: click.Context, option: click.Parameter, value: bool) -> None:
    if value:
        context.ensure_object(Given).as_json = True


def _shared(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options of the group and of each of its commands."""
    folder = click.option(
        "--cache-dir",
        "--cache",
        metavar="DIR",
        expose_value=False,
        callback=_set_folder,
        help="The cache's folder [AOTC_CACHE_DIR].",
    )
    as_json = click.option(
        "--json",
        is_flag=True,
        expose_value=False,
        callback=_set_json,
        help="Print one JSON object.",
    )
    return folder(as_json(function))


class _Size(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """`10GiB`, `500MB`, `none`."""

    name = "SIZE"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        return parse(SETTINGS["AOTC_CACHE_MAX_SIZE"], value, "flag")


class _Duration(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """`30d`, `12h`, `45min` in seconds."""

    name = "AGE"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?(s|min|h|d|w)", str(value))
        if found is None:
            self.fail(
                f"{value!r} is not an age, expected one such as 30d, 12h or 45min", param, ctx
            )
        return float(found[1]) * UNITS_S[found[2]]


_kind = click.option(
    "--kind", "--bucket", type=click.Choice(list(BUCKETS)), help="Only this kind of entry."
)
_dry_run = click.option(
    "--dry-run", is_flag=True, help="Delete nothing; print what would be deleted."
)


@click.group("cache", cls=SuggestingGroup)
@_shared
@click.pass_context
def command(context: click.Context) -> None:
    """Show, check, limit and move the artifact cache; explain its misses.

    `--cache-dir` and `--json` may stand before or after the subcommand.
    """
    context.ensure_object(Given)


@command.command("dir")
@_shared
@click.pass_obj
def show_folder(given: Given) -> None:
    """Print the cache's folder."""
    folder = cache_folder(given.folder)
    if given.as_json:
        print_json("aotc.cache.dir/1", {"folder": str(folder)})
    else:
        click.echo(folder)


@command.command("size")
@_shared
@click.pass_obj
def show_size(given: Given) -> None:
    """Print how many entries there are and their bytes."""
    from aotc.cache.collect import rows

    found = list(rows(given.store()))
    total, limit = sum(row.size_bytes for row in found), setting("AOTC_CACHE_MAX_SIZE")
    if given.as_json:
        record = {"entries": len(found), "bytes": total, "max_bytes": limit}
        print_json("aotc.cache.size/1", record)
    else:
        most = "no limit" if limit is None else f"at most {bytes_text(limit)}"
        click.echo(f"{len(found)} entries, {bytes_text(total)} ({most})")


@command.command("ls")
@_kind
@_shared
@click.pass_obj
def list_entries(given: Given, kind: str | None) -> None:
    """List the entries, most recently used first: kind, content, target, size and age."""
    from aotc.cache.collect import key_record, rows

    found = [row for row in rows(given.store()) if kind in (None, row.kind)]
    now_s = time.time()
    found.sort(key=lambda row: (-row.last_use_s(now_s), row.digest))
    if given.as_json:
        print_json("aotc.cache.ls/1", {"entries": [_entry(row, now_s) for row in found]})
        return
    table = []
    for row in found:
        key, used = key_record(row), age_text(now_s - row.last_use_s(now_s))
        size = bytes_text(row.size_bytes)
        table.append((row.digest[:12], row.kind, summary(key), target_of(key) or "-", size, used))
    print_table(("digest", "kind", "what it is", "target", "size", "used"), table)


@command.command("verify")
@_shared
@click.pass_obj
def verify_entries(given: Given) -> int:
    """Read every entry and check every byte by its digest; changes nothing.

    Exit 6 where an entry is damaged, or somebody else could have written it, 7 where some cannot be
    read and the others are sound. A build treats such an entry as a miss.
    """
    from aotc.cache.checking import check

    findings = list(check(given.store()))
    bad = [finding for finding in findings if finding.state != "sound"]
    if given.as_json:
        entries = [
            {"digest": each.row.digest, "kind": each.row.kind, "state": each.state}
            | {"detail": each.detail}
            for each in bad
        ]
        record = {"entries": len(findings), "sound": len(findings) - len(bad), "findings": entries}
        print_json("aotc.cache.verify/1", record)
    else:
        for each in bad:
            click.echo(
                f"{each.row.digest[:12]}  {each.row.kind}  {each.state}: {printable(each.detail)}"
            )
        click.echo(f"{len(findings)} entries: {len(findings) - len(bad)} sound, {len(bad)} not")
    if any(each.state != "unreadable" for each in bad):
        return INTEGRITY_EXIT_CODE
    return EnvironmentFault.exit_code if bad else 0


@command.command("gc")
@click.option("--max-size", type=_Size(), help="Size to keep: 5GiB, none [AOTC_CACHE_MAX_SIZE].")
@_shared
@click.pass_obj
def collect_garbage(given: Given, max_size: int | None) -> None:
    """Delete the remains of killed processes and of your killed builds, damaged entries, and the
    least recently used entries above the limit.

    Files that another process is writing or reading are kept.
    """
    from aotc.aot.folders import sweep
    from aotc.cache.collect import collect_all

    store = given.store()
    found = collect_all(store, _limit(max_size, "max_size"))
    folders = sweep()
    if given.as_json:
        print_json("aotc.cache.gc/1", {**_deleted(found), "folders": folders})
        return
    assert found.leftovers is not None
    click.echo(
        f"{found.leftovers.staged} unfinished, {found.leftovers.torn} half-deleted and "
        f"{found.leftovers.quarantined} damaged entries deleted, {found.leftovers.locks} locks"
    )
    click.echo(f"{folders} temporary folders of killed builds deleted")
    click.echo(f"{found.entries} entries above the limit deleted, {bytes_text(found.bytes)}")


@command.command("prune")
@click.option(
    "--older-than", type=_Duration(), help="Delete entries not used for this long: 30d, 12h."
)
@click.option(
    "--max-size", type=_Size(), help="Delete the least recently used until this size is left: 5GiB."
)
@_kind
@_dry_run
@_shared
@click.pass_context
def prune_entries(
    context: click.Context,
    older_than: float | None,
    max_size: int | None,
    kind: str | None,
    dry_run: bool,
) -> None:
    """Delete entries by age, by total size, or by kind."""
    from aotc.cache.collect import prune

    given = context.ensure_object(Given)
    if older_than is None and max_size is None and kind is None:
        raise click.UsageError("say which: --older-than, --max-size or --kind", context)
    found = prune(given.store(), kind, older_than, max_size, dry_run)
    if given.as_json:
        print_json("aotc.cache.prune/1", {**_deleted(found), "dry_run": dry_run})
    else:
        word = "would be deleted" if dry_run else "deleted"
        click.echo(f"{found.entries} entries {word}, {bytes_text(found.bytes)}")


@command.command("clear")
@_kind
@_shared
@click.pass_obj
def clear_entries(given: Given, kind: str | None) -> None:
    """Delete all entries, or those of one kind."""
    from aotc.cache.collect import clear

    count = clear(given.store(), kind)
    if given.as_json:
        print_json("aotc.cache.clear/1", {"deleted": count})
    else:
        click.echo(f"{count} entries deleted")


@command.command("export")
@click.argument("path", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE")
@click.option("--force", is_flag=True, help="Replace a file that stands there.")
@_kind
@_shared
@click.pass_obj
def export_entries(given: Given, path: Path, force: bool, kind: str | None) -> None:
    """Write all entries into one archive FILE; the same entries give the same bytes."""
    from aotc.cache.archive import export_to
    from aotc.cache.errors import ArchiveTaken

    if path.exists() and not force:
        raise ArchiveTaken(path=str(path))
    found = export_to(given.store(), path, kind)
    if given.as_json:
        record = {"path": str(path), "entries": found.entries, "bytes": found.bytes}
        more = {"sha256": found.digest, "skipped": found.skipped}
        print_json("aotc.cache.export/1", {**record, **more})
        return
    click.echo(f"{found.entries} entries, {bytes_text(found.bytes)}, sha256:{found.digest}")
    if found.skipped:
        click.echo(f"{found.skipped} left out: `aotc cache verify` says why", err=True)


@command.command("import")
@click.argument("path", type=FileThatExists(), metavar="FILE")
@_shared
@click.pass_obj
def import_entries(given: Given, path: Path) -> None:
    """Add the entries of an archive FILE that `export` wrote; those in the cache are kept.

    Nothing is added unless every digest of the whole file agrees. Entries become machine code:
    import archives of people whom you trust.
    """
    from aotc.cache.archive import import_from

    found = import_from(given.store(), path)
    if given.as_json:
        record = {"entries": found.entries, "added": found.added, "present": found.present}
        print_json("aotc.cache.import/1", record)
    else:
        click.echo(f"{found.entries} entries: {found.added} added, {found.present} were there")


@command.command("explain")
@click.argument("wanted", required=False, metavar="[DIGEST]")
@click.option("--all", "has_all", is_flag=True, help="Print every key, not one for each reason.")
@_shared
@click.pass_obj
def explain_misses(given: Given, wanted: str | None, has_all: bool) -> None:
    """Say why the last build missed: the nearest stored key and the fields that differ.

    Of keys of one kind that differ in the same fields, only the first is printed. DIGEST may be the
    first digits of a key: every key that begins with them is printed, and no other.
    """
    from aotc.cache.collect import explain, last_misses

    store = given.store()
    started_s, keys = last_misses(store)
    chosen = [key for key in keys if not wanted or key.digest.startswith(wanted)]
    if wanted and not chosen:
        text = f"no key that the last build missed begins with {wanted!r}"
        raise click.UsageError(text, click.get_current_context())
    explanations = [explain(store, key, before_s=started_s) for key in chosen]
    if given.as_json:
        misses = [_explanation(item) for item in explanations]
        print_json("aotc.cache.explain/1", {"misses": misses})
        return
    if not explanations:
        click.echo("the last build missed nothing")
    for item, more in explained(explanations, has_all or wanted is not None):
        for line in explanation_lines(item, more):
            click.echo(printable(line))


def _limit(given: int | None, name: str) -> int | None:
    """The limit of the option, where it is given, `none` too; else that of the setting."""
    source = click.get_current_context().get_parameter_source(name)
    is_given = source is click.core.ParameterSource.COMMANDLINE
    limit: int | None = given if is_given else setting("AOTC_CACHE_MAX_SIZE")
    return limit


def _deleted(found: Deleted) -> dict[str, Any]:
    record: dict[str, Any] = {"entries": found.entries, "bytes": found.bytes}
    if found.leftovers is not None:
        left = found.leftovers
        record["leftovers"] = {
            "unfinished": left.staged,
            "half_deleted": left.torn,
            "damaged": left.quarantined,
            "locks": left.locks,
        }
    return record


def _entry(row: Row, now_s: float) -> dict[str, Any]:
    from aotc.cache.collect import key_record

    key, used = key_record(row), datetime.fromtimestamp(row.last_use_s(now_s), UTC)
    return {
        "digest": row.digest,
        "bucket": row.bucket,
        "kind": row.kind,
        "what": summary(key),
        "target": target_of(key),
        "bytes": row.size_bytes,
        "used": used.isoformat(timespec="seconds"),
        "fields": fields_of(key),
    }


def _explanation(item: Explanation) -> dict[str, Any]:
    return {
        "digest": item.wanted.digest,
        "fields": fields_of(item.wanted),
        "nearest": item.nearest.digest if item.nearest else None,
        "differing": [
            {"field": row.field, "stored": row.stored, "wanted": row.wanted}
            for row in item.differing
        ],
    }
