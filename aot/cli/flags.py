"""Options that several commands take; each is said once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aotc.aot.cli.suggesting import FileThatExists

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class Amount(click.FloatRange):
    """A finite number from `least` on, or above it where that is 0 and `above`."""

    def __init__(self, least: float = 0.0, above: bool = False) -> None:
        super().__init__(min=least, min_open=above)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; raises BadParameter."""
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value} is not a finite number", param, ctx)
        return found


def complete_files(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """In a shell: files, where an argument may be other text too."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


COUNT = click.IntRange(min=1)
SECONDS = Amount(above=True)
specs = click.argument(
    "specs", nargs=-1, required=True, metavar="SPEC…", shell_complete=complete_files
)
tune_budget = click.option(
    "--tune-budget", type=SECONDS, metavar="SECONDS", help="Stop measuring after this time."
)

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
    help="Measure nothing, and fail if a kernel is neither in cache nor record [AOTC_FROZEN].",
)
entry = click.option(
    "--entry",
    metavar="NAME",
    help="Entry point; needed where there are several and none is `forward`.",
)


def _sizes(
    _context: click.Context, option: click.Parameter, texts: Sequence[str]
) -> dict[str, int]:
    """`NAME=N` arguments as name → size; raises BadParameter."""
    found: dict[str, int] = {}
    for text in texts:
        name, _, size = text.partition("=")
        if not name or not (size.isascii() and size.isdigit()) or name in found:
            expected = "another name: this one was given before" if name in found else "NAME=N"
            raise click.BadParameter(f"{text!r}, expected {expected}", param=option)
        found[name] = int(size)
    return found


sizes = click.option(
    "--size",
    "sizes",
    multiple=True,
    callback=_sizes,
    metavar="NAME=N",
    help="Size of a dim that varies, in place of the example's; may be given repeatedly.",
)
digest = click.option(
    "--digest",
    metavar="sha256:HEX",
    help="Refuse the bundle unless this is its digest.",
)
remote_cache = click.option(
    "--remote-cache", metavar="URL", help="Remote cache, read after the folder [AOTC_REMOTE_CACHE]."
)
jobs = click.option("--jobs", type=int, help="Number of compiler processes [AOTC_JOBS].")
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
    help="Name of the device to measure on, as `aotc doctor` prints it.",
)
quiet = click.option("--quiet", is_flag=True, help="No progress on stderr.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
trusted_keys = click.option(
    "--key",
    "keys",
    multiple=True,
    type=FileThatExists(),
    metavar="KEY.pub.pem",
    help="Public key; one of those given must have signed it [AOTC_TRUSTED_KEYS].",
)
revoked = click.option(
    "--revoked",
    type=FileThatExists(),
    metavar="FILE",
    help="List of the digests of revoked bundles [AOTC_REVOKED].",
)
transfers = click.option(
    "--jobs",
    type=click.IntRange(1, 64),
    default=4,
    show_default=True,
    help="Number of parallel transfers.",
)
plain_http = click.option(
    "--plain-http", is_flag=True, help="Use HTTP without TLS, as for registries on this machine."
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
    help="Have torch run ops that cannot be compiled, at each call; the bundle then needs torch.",
)
quantize = click.option(
    "--quantize",
    type=click.Choice(["int8", "int4", "fp8"]),
    help="Store weights of linear layers and embeddings in this type, one scale a group of values.",
)
round_intermediates = click.option(
    "--round-intermediates", is_flag=True, help="Round 16-bit results as eager does."
)
unchecked_indices = click.option(
    "--unchecked-indices",
    is_flag=True,
    help="Leave out the checks of indices and divisors in each call.",
)
ranks = click.option(
    "--tensor-parallel",
    "ranks",
    type=click.IntRange(1, 8),
    default=1,
    help="Split each call over this many GPUs of one host.",
)
adapters = click.option(
    "--adapters", is_flag=True, help="Let programs of the bundle apply LoRA adapters."
)


def _import_each(context: click.Context, option: click.Parameter, texts: Sequence[str]) -> None:
    if texts and not context.resilient_parsing:
        from aotc.aot.capture.user_code import import_code

        for text in texts:
            import_code(text)


def _import_option(**handling: Any) -> Callable[[Any], Any]:
    return click.option(
        "--import",
        "imports",
        multiple=True,
        metavar="FILE.py|MODULE",
        help="Import this before loading, to register ops that torch runs for the bundle.",
        **handling,
    )


imports = _import_option(expose_value=False, callback=_import_each)
imports_elsewhere = _import_option()  # in the processes that a command starts
