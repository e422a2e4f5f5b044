"""`aotc verify BUNDLE`: signatures, digests of every byte, compatibility with this machine, golden
numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from aotc.aot.cli import flags
from aotc.aot.cli.explain import error_classes
from aotc.aot.cli.printing import print_json
from aotc.aot.cli.suggesting import near_path
from aotc.aot.printable import printable
from aotc.runtime.verify import LAYERS, Finding, verify

EXIT_CODES = {"signature": 6, "integrity": 6, "compatibility": 5, "golden": 1}


@click.command("verify")
@click.argument("bundle", type=click.Path(path_type=Path))
@flags.trusted_keys
@flags.revoked
@click.option("--signature", "layer", flag_value="signature", help="Signatures only.")
@click.option("--integrity", "layer", flag_value="integrity", help="Digests only.")
@click.option("--compat", "layer", flag_value="compatibility", help="Compatibility only.")
@click.option("--golden", "layer", flag_value="golden", help="Golden numbers only.")
@click.option("--device", help="cpu, cuda or cuda:1; else the first target that runs here.")
@flags.digest
@flags.imports
@flags.as_json
def command(
    bundle: Path,
    keys: tuple[Path, ...],
    revoked: Path | None,
    layer: str | None,
    device: str | None,
    digest: str | None,
    as_json: bool,
) -> int:
    """Check BUNDLE: signatures where keys are trusted, integrity, compatibility, golden numbers;
    all unless one is named.

    A check is skipped when one before it failed. Exit 6 when no trusted key signed it, when it is
    revoked or a byte was altered, 5 when it does not run here, 1 when its numbers are wrong, 2 when
    `--golden` is given and there are none.
    """
    layers = (layer,) if layer else LAYERS
    findings = verify(
        bundle, layers, device, trusted_keys=keys or None, revoked=revoked, digest=digest
    )
    meant = near_path(str(bundle))
    if as_json:
        rows = [{**finding.as_map(), "hint": _hint(finding, meant)} for finding in findings]
        print_json("aotc.verify/1", {"path": str(bundle), "findings": rows})
    else:
        _print(findings, meant)
    bad = {"failed", "absent"} if layer == "golden" else {"failed"}
    failed = [finding for finding in findings if finding.status in bad]
    return exit_code(failed[0]) if failed else 0


def exit_code(finding: Finding) -> int:
    """That of the error which the finding stands for, else that of its layer."""
    kind = error_classes().get(finding.code)
    return EXIT_CODES[finding.layer] if kind is None else int(kind.exit_code)


def _hint(finding: Finding, meant: str) -> str:
    """The next step; `meant` is the path like the bundle's that exists."""
    return f"did you mean `{meant}`? {finding.hint}".strip() if meant else finding.hint


def _print(findings: Sequence[Finding], meant: str) -> None:
    for layer in LAYERS:
        rows = [finding for finding in findings if finding.layer == layer]
        good = [finding for finding in rows if finding.status == "ok"]
        if layer == "integrity" and good:
            click.echo(f"{layer:<14} {len(good)} files match their digests")
            rows = [finding for finding in rows if finding.status != "ok"]
        for finding in rows:
            word = {"ok": "ok", "failed": "FAILED", "absent": "skipped"}[finding.status]
            is_sentence = layer == "compatibility" and finding.detail  # which names the subject
            parts = (word, "" if is_sentence else finding.subject, finding.detail)
            click.echo(f"{layer:<14} {', '.join(filter(None, parts))}")
            if hint := _hint(finding, meant):
                click.echo(f"{'':<14} hint: {printable(hint)}")
