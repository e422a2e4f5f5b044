"""Too few descriptors, too little memory: typed errors, from which the process goes on."""

import resource
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import small_bundle

from aotc.runtime import check, load
from aotc.runtime.arrays.exchange import kind_of
from aotc.runtime.errors import AotcError, BundleLimit, EnvironmentFault, MemoryFull
from aotc.runtime.extras import read_golden
from aotc.runtime.verify import verify


@contextmanager
def limited(kind, value):
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (value, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)


WORK = {
    "load": lambda bundle: load(bundle)(bytes(24)),
    "check": check,
    "verify": verify,
    "golden": read_golden,
}


@pytest.mark.parametrize("name", WORK)
def test_too_few_descriptors_are_typed(bundle, name):
    WORK[name](bundle)
    with open("/dev/null") as taken:  # noqa: PTH123
        highest = taken.fileno()
    failed = 0
    for count in range(highest + 6):
        with limited(resource.RLIMIT_NOFILE, count):
            try:
                WORK[name](bundle)
            except EnvironmentFault:
                failed += 1
    assert failed
    WORK[name](bundle)


LOW = """
import resource, sys
sys.path[:0] = sys.argv[2:]
import null_driver, small_bundle
from aotc.runtime import load
from aotc.runtime.errors import AotcError
load(sys.argv[1])(bytes(24))
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
before = resource.getrlimit(resource.RLIMIT_AS)
failed = 0
for room in range(0, 1 << 20, 1 << 15):
    resource.setrlimit(resource.RLIMIT_AS, (size - (1 << 19) + room, before[1]))
    try:
        load(sys.argv[1])(bytes(24))
    except AotcError as error:
        failed += 1
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
load(sys.argv[1])(bytes(24))
print("refused", failed)
"""


def test_low_address_space_is_typed(bundle):
    folders = [str(Path(small_bundle.__file__).parent), str(Path(__file__).parents[1])]
    ran = subprocess.run(
        [sys.executable, "-c", LOW, str(bundle), *folders],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]


@pytest.mark.parametrize("kind", ["bytes", "numpy", "torch"])
def test_an_output_that_there_is_no_room_for_is_typed(bundle, kind):
    array = bytes(24)
    if kind == "numpy":
        array = pytest.importorskip("numpy").zeros((2, 3), "f4")
    elif kind == "torch":
        array = pytest.importorskip("torch").zeros((2, 3))
    with load(bundle) as program:
        program(array)
        session = program.session()
        port = session._outputs[0]
        port.shape, port.nbytes, port.torch_template = (1 << 20, 1 << 22), 1 << 44, None
        with pytest.raises(MemoryFull, match="output `y`") as raised:
            session._make(kind_of(session._inputs[0], array), [])
        assert raised.value.exit_code == 7
        assert isinstance(raised.value, MemoryError)


def test_a_sparse_library_takes_no_memory_before_its_digest(bundle):
    from aotc.runtime.bundle.manifest import MANIFEST_NAME, Manifest

    manifest = Manifest.from_bytes((bundle / MANIFEST_NAME).read_bytes())
    library = bundle / "targets/null/kernels.so"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for nbytes, code in ((1 << 28, "bundle-altered"), (40 << 30, "bundle-limit")):
        with library.open("r+b") as file:
            file.truncate(nbytes)
        files = tuple(
            entry.replace(nbytes=nbytes) if entry.name.endswith(".so") else entry
            for entry in manifest.files
        )
        (bundle / MANIFEST_NAME).write_bytes(manifest.replace(files=files).to_bytes())
        with pytest.raises(AotcError) as raised:
            load(bundle)
        assert raised.value.code == code
    assert isinstance(raised.value, BundleLimit)
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 64 << 10
