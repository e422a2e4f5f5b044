"""The systems: how an artifact of each is made, used, and reached by who can write its files."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import struct
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path
from typing import ClassVar

import numpy

from .trial import Missed

for beside in ("cache", "pack"):  # `remote_server`, `small_bundle`
    sys.path.insert(0, str(Path(__file__).parents[1] / beside))


class FoundAltered(Exception):
    """`aotc verify` says that the bundle is not as it was made."""


class System:
    """An artifact in a folder. Variant 0 is the user's, variant 1 another one that is as valid.

    `parts` names what can be altered: `code` is what runs (or all there is), `record` describes
    it, `weights` and `golden` are numbers; each is a pattern of a path in the folder.
    """

    name = ""
    claims = ""
    parts: ClassVar[dict[str, str]] = {}
    flips = 64  # of each part

    @property
    def version(self) -> str:
        return ""

    def make(self, folder: Path, variant: int) -> None:
        """Make a variant in an empty folder."""
        raise NotImplementedError

    def use(self, folder: Path) -> bytes:
        """What the user gets; raises what the system raises, or Missed."""
        raise NotImplementedError

    def path(self, folder: Path, part: str) -> Path:
        """Path of a part."""
        (found,) = folder.glob(self.parts[part])
        return found

    def write(self, folder: Path, part: str, data: bytes) -> None:
        """Overwrite a part, as somebody can who may write the file."""
        path = self.path(folder, part)
        path.chmod(0o644)
        path.write_bytes(data)

    def read(self, folder: Path, part: str) -> bytes:
        """The bytes of a part."""
        return self.path(folder, part).read_bytes()

    def make_consistent(self, folder: Path) -> bool:
        """Make digests beside `code` right again, without any key; False where there are none."""
        return False

    def whole(self, tag: int) -> list[bytes]:
        """What `tags` gives of an entry that one writer wrote alone."""
        return [bytes([tag]) * 60_000] * 2


class Cache(System):
    """aotc's artifact cache."""

    name = "aotc cache"
    claims = "every byte digested on each read; only the owner may write the folder"
    parts: ClassVar = {
        "code": "binaries-v*/??/*/kernel.code",
        "record": "binaries-v*/??/*/entry.json",
    }

    def key(self, number: int = 0):
        from aotc.cache import Key

        return Key.of("binaries", kernel=f"k{number}")

    def files(self, variant: int) -> dict[str, bytes]:
        return {"facts.json": b'{"v":%d}' % variant, "kernel.code": bytes([65 + variant]) * 4096}

    def make(self, folder: Path, variant: int) -> None:
        from aotc.cache import Store

        Store(folder).put(self.key(), self.files(variant))

    def use(self, folder: Path) -> bytes:
        from aotc.cache import Store

        entry = Store(folder).get(self.key())
        if entry is None:
            raise Missed
        return entry.files["facts.json"] + entry.files["kernel.code"]

    def make_consistent(self, folder: Path) -> bool:
        record = json.loads(self.read(folder, "record"))
        _correct(record["files"], self.read(folder, "code"))
        self.write(folder, "record", json.dumps(record).encode())
        return True

    # Writers of entries that are whole or not: see `attempts.kills` and `attempts.races`.

    def put(self, folder: Path, number: int, tag: int) -> None:
        from aotc.cache import Store

        files = {"a": bytes([tag]) * 60_000, "b": bytes([tag]) * 60_000}
        Store(folder).put(self.key(number), files)

    def tags(self, folder: Path, number: int) -> list[bytes] | None:
        from aotc.cache import Store

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            entry = Store(folder).get(self.key(number))
        return None if entry is None else list(entry.files.values())


class RemoteCache(Cache):
    """Its remote cache: the files of a server that somebody else can write."""

    name = "aotc remote cache"
    claims = "records authenticated by a key, files by their digests"
    parts: ClassVar = {"code": "cas/*", "record": "ac/*"}
    put = tags = None  # type: ignore[assignment]

    def make(self, folder: Path, variant: int) -> None:
        from remote_server import KEY, TOKEN, serving

        from aotc.cache.remote import RemoteLayer

        with serving() as server:
            files = {"kernel.code": self.files(variant)["kernel.code"]}
            key = (KEY, b"key of the attacker".ljust(32))[variant]
            RemoteLayer(server.url, key, TOKEN).put_many([(self.key(), files)])
            for path, data in server.files.items():
                (folder / path[1:]).parent.mkdir(exist_ok=True)
                (folder / path[1:]).write_bytes(data)

    def use(self, folder: Path) -> bytes:
        from remote_server import KEY, serving

        from aotc.cache.remote import RemoteLayer

        with serving() as server:
            for path in folder.glob("*/*"):
                if path.is_file():
                    with contextlib.suppress(MemoryError):
                        server.files[f"/{path.relative_to(folder)}"] = path.read_bytes()
            files = RemoteLayer(server.url, KEY, total_s=5).get(self.key())
        if files is None:
            raise Missed
        return b"".join(files.values())

    def make_consistent(self, folder: Path) -> bool:
        head, _, text = self.read(folder, "record").partition(b"\n")
        record, code = json.loads(text), self.path(folder, "code")
        _correct(record["files"], code.read_bytes())
        code.rename(code.with_name(record["files"][0]["sha256"]))
        self.write(folder, "record", head + b"\n" + json.dumps(record).encode())
        return True


def _correct(rows: list[dict[str, object]], data: bytes) -> None:
    for row in rows:
        if row["name"] == "kernel.code":
            row["sha256"], row["size_bytes"] = hashlib.sha256(data).hexdigest(), len(data)


class Bundle(System):
    """aotc's bundle for the CPU, loaded without a digest and without keys."""

    name = "aotc bundle"
    claims = "every byte that is used is digested before it is; `digest=` or a signature pins it"
    parts: ClassVar = {
        "code": "targets/*/kernels.so",
        "record": "manifest.msgpack",
        "weights": "weights.safetensors",
        "golden": "golden.safetensors",
    }

    def make(self, folder: Path, variant: int) -> None:
        spec = folder.parent / f"model{variant}.py"
        spec.write_text(MODEL.replace("VARIANT", str(variant)))
        command = [sys.executable, "-m", "aotc.aot.cli", "build", spec, "-o", folder / "bundle"]
        command += ["--quiet", "--cache-dir", folder.parent / "cache-of-builds"]
        subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
        for path in (folder / "bundle").iterdir():
            path.rename(folder / path.name)
        (folder / "bundle").rmdir()

    def use(self, folder: Path) -> bytes:
        import aotc.runtime as runtime

        given = numpy.ones((4, 64), numpy.float32)
        with contextlib.closing(runtime.load(folder)) as program:
            return numpy.asarray(program(given)).tobytes()

    def put(self, folder: Path, number: int, tag: int) -> None:
        import null_driver  # noqa: F401  # puts itself in the table of drivers
        import small_bundle

        small_bundle.write(folder / str(number), float(tag), force=True)

    def tags(self, folder: Path, number: int) -> list[bytes] | None:
        """Of all its files, read at one time: whether digests are right."""
        from aotc.runtime.verify import verify

        if not (folder / str(number)).exists():
            return None
        findings = verify(folder / str(number), layers=("integrity",))
        return sorted({each.code.encode() for each in findings if each.status == "failed"})

    def whole(self, tag: int) -> list[bytes]:
        return []

    def verify(self, folder: Path) -> bytes:
        """What `aotc verify` does with the golden numbers."""
        from aotc.runtime.verify import verify

        findings = verify(folder)
        if not all(finding.status == "ok" for finding in findings):
            raise FoundAltered
        return b"verified"


class PinnedBundle(Bundle):
    """The same, loaded by the digest that its maker gave."""

    name = "aotc bundle, pinned"
    put = tags = None  # type: ignore[assignment]
    claims = "nothing but the bundle of this digest is used"

    pin = ""

    def make(self, folder: Path, variant: int) -> None:
        super().make(folder, variant)
        if variant == 0:
            self.pin = (folder / "manifest.msgpack").read_bytes()[-32:].hex()

    def use(self, folder: Path) -> bytes:
        import aotc.runtime as runtime

        given = numpy.ones((4, 64), numpy.float32)
        with contextlib.closing(runtime.load(folder, digest=f"sha256:{self.pin}")) as program:
            return numpy.asarray(program(given)).tobytes()


MODEL = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(VARIANT)
        self.linear = torch.nn.Linear(64, 64)

    def forward(self, x):
        return torch.relu(self.linear(x)) + (1 - 2 * VARIANT)

model = Model().eval()
example_inputs = (torch.ones(4, 64),)
"""


class TritonCache(System):
    """Triton's cache directory, as `triton.compile` reads it; what it would hand to the driver."""

    name = "Triton cache"
    claims = "none about altered files: whoever may write the folder is trusted"
    parts: ClassVar = {"code": "*/add.cubin", "record": "*/add.json"}

    @property
    def version(self) -> str:
        import triton

        return str(triton.__version__)

    def make(self, folder: Path, variant: int) -> None:
        self._kernel(folder, 0)
        if variant:
            (code,) = folder.glob(self.parts["code"])
            other = folder.parent / "other-kernels"
            code.write_bytes(self._kernel(other, 1).asm["cubin"])

    def use(self, folder: Path) -> bytes:
        for path in folder.glob(
            "*/__grp__*"
        ):  # its paths are absolute: as if it had been made here
            group = json.loads(path.read_bytes())["child_paths"]
            moved = {name: str(path.parent / name) for name in group}
            path.write_text(json.dumps({"child_paths": moved}))
        kernel = self._kernel(folder, 0)
        facts = sorted(kernel.metadata._asdict().items())  # of which the launch is made
        return bytes(kernel.asm["cubin"]) + repr(facts).encode()

    def _kernel(self, folder: Path, variant: int):
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource

        from . import kernels

        triton.knobs.cache.dir = str(folder)
        types = {"x": "*fp32", "y": "*fp32", "n": "i32", "B": "constexpr"}
        function = (kernels.add, kernels.other_add)[variant]
        source = ASTSource(function, signature=types, constexprs={"B": 128})
        return triton.compile(source, target=GPUTarget("cuda", 90, 32))

    def put(self, folder: Path, number: int, tag: int) -> None:
        """As `triton.compile` writes an entry: each file, then the group."""
        manager = self._manager(folder, number)
        group = {name: manager.put(bytes([tag]) * 60_000, name) for name in ("a.cubin", "a.json")}
        manager.put_group("a.json", group)

    def tags(self, folder: Path, number: int) -> list[bytes] | None:
        group = self._manager(folder, number).get_group("a.json")
        return group and [Path(path).read_bytes() for path in group.values()]

    @staticmethod
    def _manager(folder: Path, number: int):
        import triton
        from triton.runtime.cache import FileCacheManager

        triton.knobs.cache.dir = str(folder)
        return FileCacheManager(f"K{number}")


class Inductor(System):
    """AOTInductor's package for the CPU: a zip file that its loader extracts and opens."""

    name = "AOTInductor package"
    claims = "none about altered files: models are code, and trusted (torch's SECURITY.md)"
    parts: ClassVar = {"code": "model.pt2"}
    flips = 32

    def __init__(self, packages: tuple[Path, Path] | None = None) -> None:
        self.packages = packages  # made before, for it takes a minute

    @property
    def version(self) -> str:
        import torch
        import torch._inductor.package  # seconds of imports, which no trial should pay

        return str(torch.__version__)

    def make(self, folder: Path, variant: int) -> None:
        if self.packages is not None:
            shutil.copyfile(self.packages[variant], folder / "model.pt2")
            return
        text = MODEL.replace("VARIANT", str(variant)) + (
            "exported = torch.export.export(model, example_inputs)\n"
            "torch._inductor.aoti_compile_and_package(exported, package_path='model.pt2')\n"
        )
        subprocess.run([sys.executable, "-c", text], cwd=folder, check=True, capture_output=True)

    def use(self, folder: Path) -> bytes:
        import torch

        torch.set_num_threads(1)
        model = torch._inductor.aoti_load_package(str(folder / "model.pt2"))
        return model(torch.ones(4, 64)).numpy().tobytes()

    def read(self, folder: Path, part: str) -> bytes:
        with zipfile.ZipFile(folder / "model.pt2") as package:
            return package.read(self._library(package))

    def write(self, folder: Path, part: str, data: bytes) -> None:
        """The library inside, byte for byte where it stands; the zip's own CRC stays as it was."""
        path = folder / "model.pt2"
        old = self.read(folder, part)
        text = path.read_bytes()
        at = text.index(old)
        if len(data) > len(old):
            raise NotImplementedError
        path.write_bytes(text[:at] + data.ljust(len(old), b"\0") + text[at + len(old) :])

    def replace(self, folder: Path, data: bytes) -> None:
        """The library inside, with a right CRC: a package as any zip tool writes it."""
        path = folder / "model.pt2"
        staged = folder / "staged"
        with zipfile.ZipFile(path) as old, zipfile.ZipFile(staged, "w") as new:
            library = self._library(old)
            for row in old.infolist():
                new.writestr(row.filename, data if row.filename == library else old.read(row))
        staged.replace(path)

    @staticmethod
    def _library(package: zipfile.ZipFile) -> str:
        (name,) = (name for name in package.namelist() if name.endswith(".so"))
        return name


class SafeTensors(System):
    """A file of safetensors: numbers only, nothing of it runs."""

    name = "safetensors"
    claims = "a well-formed header and no code; none about altered numbers"
    parts: ClassVar = {"weights": "model.safetensors", "record": "model.safetensors"}

    @property
    def version(self) -> str:
        import safetensors

        return str(safetensors.__version__)

    def make(self, folder: Path, variant: int) -> None:
        from safetensors.numpy import save_file

        values = numpy.full(1024, variant + 1, numpy.float32)
        save_file({"weight": values}, folder / "model.safetensors")

    def use(self, folder: Path) -> bytes:
        from safetensors.numpy import load_file

        found = load_file(folder / "model.safetensors")
        return b"".join(name.encode() + found[name].tobytes() for name in sorted(found))

    def read(self, folder: Path, part: str) -> bytes:
        data = self.path(folder, part).read_bytes()
        at = self._begin(data)
        return data[at:] if part == "weights" else data[:at]

    def write(self, folder: Path, part: str, data: bytes) -> None:
        path = self.path(folder, part)
        old = path.read_bytes()
        at = self._begin(old)
        path.write_bytes(old[:at] + data if part == "weights" else data + old[at:])

    @staticmethod
    def _begin(data: bytes) -> int:
        return 8 + struct.unpack("<Q", data[:8])[0]

    def put(self, folder: Path, number: int, tag: int) -> None:
        from safetensors.numpy import save_file

        values = numpy.full(60_000, tag, numpy.uint8)
        save_file({"a": values, "b": values}, folder / f"{number}.safetensors")

    def tags(self, folder: Path, number: int) -> list[bytes] | None:
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            found = load_file(folder / f"{number}.safetensors")
        except (SafetensorError, OSError):
            return None
        return [value.tobytes() for value in found.values()]
