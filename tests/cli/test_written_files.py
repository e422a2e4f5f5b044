"""Files that commands write: whole or not at all, never into a bundle, refused before a measurement
where they cannot be written; pictures of times."""

import hashlib
import json
import os
import resource
import stat
import sys
import threading
from pathlib import Path

import pytest

from aotc.aot.cli import output
from aotc.aot.cli.output import write_output
from aotc.runtime.errors import DiskFull

PROFILE = ("profile", "--repetitions", "1")
BENCH = ("bench", "--rounds", "1", "--seconds", "0.01")
WRITERS = {
    "report": (("report",), "-o", "page.html"),
    "sbom": (("sbom",), "-o", "bill.json"),
    "trace": (PROFILE, "--trace", "trace.json"),
    "profile": (PROFILE, "--plot", "times.svg"),
    "bench": (BENCH, "--plot", "times.svg"),
}
names = pytest.mark.parametrize("name", WRITERS)


@pytest.fixture
def call(aotc, bundle):
    """Exit code, output and errors of a writer that is given a path."""

    def run(name, path, *more):
        (command, *options), option, _ = WRITERS[name]
        return aotc(command, bundle, *options, option, path, *more)

    return run


def state_of(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@names
def test_what_stood_there_is_replaced_with_its_mode(call, tmp_path, name):
    path = tmp_path / WRITERS[name][2]
    path.write_text("old")
    path.chmod(0o640)
    assert call(name, path)[0] == 0
    assert len(path.read_text()) > 100
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert sorted(tmp_path.iterdir()) == [path]


@names
def test_paths_that_cannot_be_written_are_refused_before_anything_runs(
    call, tmp_path, name, monkeypatch
):
    last = WRITERS[name][2]
    (tmp_path / last).mkdir()
    (tmp_path / "file").write_text("")

    def nothing(*_, **__):
        raise AssertionError("something ran")

    for module in ("bench.contest", "profile.profile_bundle", "report.read_facts"):
        monkeypatch.setattr(f"aotc.aot.cli.{module}", nothing)
    for path, text in (
        (tmp_path / "absent" / last, "no such directory"),
        (tmp_path / last, "is a directory"),
        (tmp_path / "file" / last, "no such directory"),
    ):
        code, out, errors = call(name, path)
        assert code == 7, errors
        assert text in errors
        assert str(path) in errors
        assert out == ""
    code, out, errors = call(name, tmp_path / "absent" / last, *(["--json"] * (name != "sbom")))
    assert code == 7
    assert name == "sbom" or json.loads(out)["code"] == "environment"


@names
def test_nothing_is_written_into_a_bundle(call, bundle, name):
    before = state_of(bundle)
    code, _, errors = call(name, bundle / WRITERS[name][2])
    assert code == 2
    assert "every file of which has its digest" in errors
    assert state_of(bundle) == before


def test_a_full_disk_leaves_what_stood_there(call, tmp_path):
    path = tmp_path / "page.html"
    path.write_text("old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        code, _, errors = call("report", path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert code == 7
    assert "cannot write" in errors
    assert path.read_text() == "old"
    assert sorted(tmp_path.iterdir()) == [path]
    with pytest.raises(DiskFull):
        write_output(Path("/dev/full"), b"x")


def test_a_pipe_gets_all_of_it(call, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    assert call("report", pipe)[0] == 0
    reader.join()
    assert found[0].endswith(b"</html>\n")
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_link_stays_one(call, tmp_path):
    (tmp_path / "real").mkdir()
    link = tmp_path / "page.html"
    link.symlink_to(tmp_path / "real" / "page.html")
    assert call("report", link)[0] == 0
    assert link.is_symlink()
    assert (tmp_path / "real" / "page.html").stat().st_size > 1000


@pytest.mark.parametrize("name", ["profile", "bench"])
def test_a_picture_is_of_the_format_of_its_name(call, tmp_path, name):
    code, _, errors = call(name, tmp_path / "times.pdf")
    assert code == 2
    assert "found 'times.pdf', expected a name that ends in .svg or .png" in errors
    code, _, errors = call(name, tmp_path / "times.SVG")
    assert (code, errors) == (0, "")
    assert (tmp_path / "times.SVG").read_text().startswith("<svg ")
    pytest.importorskip("matplotlib")
    assert call(name, tmp_path / "times.png")[0] == 0
    assert (tmp_path / "times.png").read_bytes()[:4] == b"\x89PNG"


def test_a_png_names_its_extra_where_it_is_missing(call, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, _, errors = call("profile", tmp_path / "times.png")
    assert code == 7
    assert "`matplotlib`, which writes PNG files, is not installed" in errors
    assert 'pip install "aotc[plot]"' in errors
    assert "times.svg" in errors
    assert not list(tmp_path.iterdir())


def test_pictures_have_their_kernels_and_contenders(aotc, bundle, spec, tmp_path):
    assert aotc(*PROFILE, bundle, "--plot", tmp_path / "p.svg")[0] == 0
    text = (tmp_path / "p.svg").read_text()
    assert "softmax_12x80" in text
    assert "what this device reaches, measured" in text
    assert aotc(*BENCH, bundle, spec, "--against", "eager", "--plot", tmp_path / "b.svg")[0] == 0
    text = (tmp_path / "b.svg").read_text()
    assert text.count(">eager<") >= 2
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


def test_write_access_is_asked_of_the_system(tmp_path, monkeypatch):
    monkeypatch.setattr(output.os, "access", lambda *_: False)
    from aotc.runtime.errors import PermissionMissing

    with pytest.raises(PermissionMissing):
        output.check_place(tmp_path / "page.html")


def test_the_line_of_a_roofline_says_where_it_is_from(call, tmp_path, monkeypatch):
    from aotc.aot.profile import cpu_limits

    monkeypatch.setattr(cpu_limits, "measure_limits", lambda needs, threads: None)
    assert call("profile", tmp_path / "times.svg")[0] == 0
    assert "the cost model&#x27;s figures of one core" in (tmp_path / "times.svg").read_text()
