"""Options that several commands take; each is said once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

targets = click.option(
    "--target",
    "targets",
    multiple=True,
    default=("cpu",),
    show_default=True,
    help="cpu, cpu-x86-64-v3, cuda (the device present), cuda:sm_90 …; may be given repeatedly.",
)
cache_dir = click.option(
    "--cache-dir",
    "--cache",
    "cache_dir",
    metavar="DIR",
    help="Folder of the artifact cache [AOTC_CACHE_DIR].",
)
frozen = click.option(
    "--frozen",
    is_flag=True,
    help="Measure nothing and compile nothing that is not in cache or record [AOTC_FROZEN].",
)
entry = click.option(
    "--entry",
    metavar="NAME",
    help="Entry point; needed where there are several and none is `forward`.",
)
digest = click.option(
    "--digest",
    metavar="sha256:HEX",
    help="Refuse the bundle unless this is its digest.",
)
remote_cache = click.option(
    "--remote-cache", metavar="URL", help="Remote cache below the folder [AOTC_REMOTE_CACHE]."
)
jobs = click.option("--jobs", type=int, help="Compiler processes [AOTC_JOBS].")
ray = click.option(
    "--ray",
    metavar="ADDRESS",
    help="Compile and measure on a Ray cluster: HOST:PORT, ray://HOST:PORT or auto.",
)
measure_on = click.option(
    "--on",
    "measure_on",
    default="",
    metavar="DEVICE",
    help="Device that measures.",
)
quiet = click.option("--quiet", is_flag=True, help="No progress on stderr.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
trusted_keys = click.option(
    "--key",
    "keys",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="KEY.pub.pem",
    help="Public key of which one must have signed it [AOTC_TRUSTED_KEYS]; may be repeated.",
)
revoked = click.option(
    "--revoked",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="List of digests that are refused [AOTC_REVOKED].",
)
transfers = click.option(
    "--jobs",
    type=click.IntRange(1, 64),
    default=4,
    show_default=True,
    help="Transfers side by side.",
)
plain_http = click.option(
    "--plain-http", is_flag=True, help="Speak HTTP without TLS, as registries on this machine do."
)
rewrites = click.option(
    "--rewrites",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE.py",
    help="Rewrites of your own: functions with @aot.rewrite; may be given repeatedly.",
)
fallback = click.option(
    "--fallback",
    type=click.Choice(["torch"]),
    help="Run ops that cannot be compiled through torch at each call; the bundle then needs it.",
)


def _import_each(context: click.Context, option: click.Parameter, texts: Sequence[str]) -> None:
    if texts and not context.resilient_parsing:
        from aotc.aot.capture.user_code import import_code

        for text in texts:
            import_code(text)


imports = click.option(
    "--import",
    "imports",
    multiple=True,
    metavar="FILE.py|MODULE",
    expose_value=False,
    callback=_import_each,
    help="Import it first: it registers ops that the bundle runs through torch.",
)
