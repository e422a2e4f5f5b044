"""The version of aotc, as the command line says it and bundles keep it."""

VERSION = "0.1.0"
