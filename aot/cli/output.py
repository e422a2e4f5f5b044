"""Files that commands write for people: whole or not at all, and never into a bundle."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import click

from aotc.aot.errors import FileTaken, OutputInBundle, PlotExtraMissing
from aotc.runtime.bundle.manifest import MANIFEST_NAME
from aotc.runtime.errors import environment_fault

FORMATS = (".svg", ".png")


class PlotFile(click.Path):
    """A path whose ending says the format of a picture: `.svg`, or `.png` by matplotlib."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path; raises BadParameter, and PlotExtraMissing before anything is measured."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if path.suffix.lower() not in FORMATS:
            self.fail(f"found {path.name!r}, expected a name that ends in .svg or .png", param, ctx)
        if path.suffix.lower() == ".png" and not (ctx is not None and ctx.resilient_parsing):
            _require_matplotlib(path)
        return path


plot = click.option(
    "--plot",
    "plot_file",
    type=PlotFile(),
    metavar="FILE.svg|FILE.png",
    help="Draw the times there; a PNG needs matplotlib.",
)


def _require_matplotlib(path: Path) -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise PlotExtraMissing(module="matplotlib", path=path.with_suffix(".svg")) from None


def check_place(path: Path | None, bundle: Path | None = None) -> None:
    """Raise `EnvironmentFault` where no file can be made at the path, and `OutputInBundle` where
    it lies in the bundle; called before anything that takes long."""
    if path is None:
        return
    if bundle is not None and _is_inside(path, bundle):
        raise OutputInBundle(path=path, bundle=bundle)
    try:
        if path.is_dir():
            raise IsADirectoryError(21, "is a directory", str(path))
        if not path.parent.is_dir():
            raise FileNotFoundError(2, "no such directory", str(path.parent))
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise PermissionError(13, "permission denied", str(path))
    except OSError as error:
        raise environment_fault("write", str(path), error) from error


def check_new(path: Path, force: bool) -> None:
    """As `check_place`; raises `FileTaken` where a file stands and `force` is not given."""
    if os.path.lexists(path) and not force:
        raise FileTaken(path=str(path))
    check_place(path)


def _is_inside(path: Path, bundle: Path) -> bool:
    return path.resolve().is_relative_to(bundle.resolve()) and (bundle / MANIFEST_NAME).is_file()


def write_output(path: Path, data: bytes, bundle: Path | None = None) -> None:
    """Write a file; what stood there is replaced when all of it is written, so that a full disk
    leaves no half of it. Raises as `check_place`."""
    check_place(path, bundle)
    try:
        is_plain = path.is_file() or not path.exists()  # no pipe, no terminal, no /dev/stdout
        if is_plain and os.access(path.resolve().parent, os.W_OK):
            _replace(path.resolve(), data)
        else:
            path.write_bytes(data)
    except OSError as error:
        raise environment_fault("write", str(path), error) from error


def _replace(path: Path, data: bytes) -> None:
    new = path.with_name(f".{path.name[:64]}.{os.getpid()}.new")
    try:
        with new.open("xb") as file:
            file.write(data)
        if path.exists():
            new.chmod(path.stat().st_mode & 0o777)
        new.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            new.unlink()
        raise


def write_plot(path: Path, heading: str, pictures: list[tuple[str, Any]]) -> None:
    """Pictures below each other as one file, in the format of its ending."""
    from aotc.aot.charts.charts import stacked, standalone

    picture = stacked(heading, pictures)
    if path.suffix.lower() == ".svg":
        write_output(path, standalone(picture).encode())
        return
    from aotc.aot.charts.png import png

    write_output(path, png(picture))
