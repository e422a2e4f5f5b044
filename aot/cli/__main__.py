"""`python -m aotc.aot.cli`: the same program as `aotc`."""

from aotc.aot.cli import main

main()
