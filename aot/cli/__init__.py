"""The command line: `aotc`. One file a command; nothing heavy is imported before it is needed."""


def main() -> None:
    """Entry point of the `aotc` program; ends the process with the documented exit code."""
    from aotc.aot.cli.program import run

    raise SystemExit(run())
