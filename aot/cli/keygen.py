"""`aotc keygen NAME`: a pair of Ed25519 keys to sign bundles with and to check them with."""

from __future__ import annotations

import click

from aotc.aot.cli import flags
from aotc.aot.cli.printing import print_json


@click.command("keygen")
@click.argument("name")
@flags.as_json
def command(name: str, as_json: bool) -> None:
    """Write NAME.pem, to sign with and to keep secret, and NAME.pub.pem, to check with.

    `openssl genpkey -algorithm ed25519` makes keys of the same form.
    """
    from aotc.aot.distribution.signing import make_keys

    private, public, keyid = make_keys(name)
    if as_json:
        print_json("aotc.keygen/1", {"private": private, "public": public, "keyid": keyid})
        return
    click.echo(f"private  {private}")
    click.echo(f"public   {public}")
    click.echo(f"key      {keyid}")
