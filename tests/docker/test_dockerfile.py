"""The Dockerfile of a serving image: its lines as text, and (nightly) all its steps performed."""

import base64
import hashlib
import importlib
import importlib.metadata
import re
import shlex
import site
import sys
import zipfile
from pathlib import Path

import click
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import dockerfile

ROOT = Path(__file__).parent.parent.parent
FILE = ROOT / "examples" / "docker" / "Dockerfile"
SERVED_WITH = ("click", "filelock")  # what the wheel of aotc depends on


@pytest.fixture
def stages():
    return dockerfile.parse(FILE.read_text())


def commands(stage):
    return [argument for instruction, argument in stage.steps if instruction == "RUN"]


def test_the_last_stage_has_neither_compiler_nor_model(stages):
    build, final = stages
    assert build.name == "build"
    text = "\n".join(f"{instruction} {argument}" for instruction, argument in final.steps)
    assert "[build]" not in text
    assert "/src" not in text
    copies = [argument for instruction, argument in final.steps if instruction == "COPY"]
    taken = [copy.split()[1] for copy in copies if copy.startswith("--from=build")]
    assert taken == ["/opt/aotc/wheels", "/opt/aotc/bundle"]


def test_every_file_that_is_copied_exists(stages):
    for stage in stages:
        for instruction, argument in stage.steps:
            if instruction == "COPY" and not argument.startswith("--from"):
                for name in argument.split()[:-1]:
                    assert (ROOT / name).exists()
    for option in re.findall(r"--constraint (\S+)", FILE.read_text()):
        assert (ROOT / option).is_file()


def test_every_command_line_of_aotc_parses(stages):
    found = 0
    for stage in stages:
        given = dict(step[1].split("=", 1) for step in stage.steps if step[0] == "ARG")
        for line in commands(stage):
            for name, value in given.items():
                line = line.replace(f"${name}", value.strip('"'))
            words = shlex.split(line.partition(">")[0])
            if not words[0].endswith("/aotc"):
                continue
            module = importlib.import_module(f"aotc.aot.cli.{words[1]}")
            with click.Context(module.command) as context:
                module.command.make_parser(context).parse_args(words[2:])
            found += 1
    assert found == 3


def test_the_bundle_is_built_frozen_from_the_cache_that_was_warmed(stages):
    lines = [line.split() for line in commands(stages[0])]
    (warm,) = [line for line in lines if line[:2] == ["/opt/build/bin/aotc", "warm"]]
    (build,) = [line for line in lines if line[:2] == ["/opt/build/bin/aotc", "build"]]
    assert lines.index(warm) < lines.index(build)
    assert "--frozen" in build
    caches = [line[line.index("--cache") + 1] for line in (warm, build)]
    assert caches[0] == caches[1]
    assert not [line for line in lines if line[0] == "grep"]


def test_an_instruction_that_is_not_known_is_refused():
    with pytest.raises(ValueError, match="VOLUME"):
        dockerfile.parse("FROM x\nVOLUME /data\n")


def wheel_of(name, folder):
    """A wheel made of an installed distribution's own files."""
    found = importlib.metadata.distribution(name)
    tag = re.search(r"^Tag: (.+)$", found.read_text("WHEEL"), re.MULTILINE)[1]
    path = folder / f"{found.metadata['Name'].replace('-', '_')}-{found.version}-{tag}.whl"
    rows = []
    with zipfile.ZipFile(path, "w") as archive:
        for file in found.files:
            if file.parts[0] in ("..", "__pycache__") or file.suffix == ".pyc":
                continue
            if file.name in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json"):
                continue
            data = file.locate().read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            rows.append(f"{file},sha256={digest},{len(data)}")
            archive.writestr(str(file), data)
        (info,) = {file.parts[0] for file in found.files if file.parts[0].endswith(".dist-info")}
        archive.writestr(f"{info}/RECORD", "\n".join([*rows, f"{info}/RECORD,,"]) + "\n")


@pytest.mark.slow
@pytest.mark.nightly  # installs three times; each command line of it is read by the tests above
def test_all_steps_end_well_and_the_image_answers(stages, tmp_path):
    """pip takes what it needs from wheels of what is installed here, so that no network is needed.
    The build stage sees this interpreter's packages, since torch takes minutes to install."""
    pytest.importorskip("torch")
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for name in (*SERVED_WITH, "setuptools"):
        wheel_of(name, wheels)

    def lend_packages(stage, command, root):
        if command == "python -m venv /opt/build":
            (target,) = (root / "opt" / "build" / "lib").glob("python*/site-packages")
            (target / "host.pth").write_text("\n".join(site.getsitepackages()) + "\n")

    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "python").symlink_to(sys.executable)
    environment = {
        "PATH": f"{tools}:/usr/bin:/bin",
        "HOME": str(tmp_path / "home"),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PYTHONNOUSERSITE": "1",
    }
    ignored = [Path(line).name for line in Path(f"{FILE}.dockerignore").read_text().split()]
    root = tmp_path / "root"
    given = {"MODEL": "examples/black_scholes.py"}  # the quickest to build
    builder = dockerfile.Builder(root, ROOT, ignored, lend_packages, environment, given)
    build, final = stages
    builder.perform(build)
    command = builder.perform(final)
    builder.run(final, shlex.join(command))
    assert re.match(r"target cpu-x86-64-v3, first answer after \d", builder.output)
    installed = {path.name for path in (root / final.name).rglob("site-packages/*")}
    assert "aotc" in installed
    assert not {"torch", "triton", "numpy"} & installed
    size_bytes = sum(path.stat().st_size for path in (root / final.name).rglob("aotc/**/*.py"))
    assert size_bytes < 4_600_000
