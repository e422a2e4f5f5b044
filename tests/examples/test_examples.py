"""Every example through a whole build, loaded and compared with eager torch on its inputs.

A build itself refuses numbers that differ from the exported module; here the module is the user's
own, run by eager torch. TransformerEncoder's fast path, which zeroes padded rows, is off.
"""

import copy
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.fixture(autouse=True)
def host_kernels():
    """Examples with Triton kernels of their own run eagerly too."""
    from aotc.kernels import on_cpu

    with on_cpu():
        yield


@pytest.fixture(autouse=True)
def no_fast_path():
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(before)


def tensors(value):
    leaves = torch.utils._pytree.tree_leaves(value)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def called(spec):
    """What a copy of the model gives: a call may change its buffers."""
    with torch.no_grad():
        return copy.deepcopy(spec.module)(*spec.arguments, **spec.keyword_arguments)


def eager(spec):
    return tensors(called(spec))


def in_f32(spec):
    """The same model computed in f32: how far eager itself is from it is bf16's own error."""
    with torch.no_grad():
        module = copy.deepcopy(spec.module).float()
        arguments = [x.float() if x.is_floating_point() else x for x in spec.arguments]
        return tensors(module(*arguments, **spec.keyword_arguments))


def distance(found, expected):
    scale = expected.abs().max().item()
    return (found.float() - expected.float()).abs().max().item() / scale


def assert_same_nesting(found, spec):
    """A model's output type of transformers keeps its names."""
    wanted = called(spec)
    assert isinstance(found, tuple) == isinstance(wanted, tuple)
    if isinstance(wanted, dict):
        assert list(found) == list(wanted)
        assert all(getattr(found, name).shape == wanted[name].shape for name in wanted)


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path, aotc, cache, tmp_path):
    if path.stem == "bert":
        pytest.importorskip("transformers")
    from aotc.aot.capture.spec import load_spec
    from aotc.runtime import load

    out = tmp_path / "bundle"
    code, _, errors = aotc("build", path, "-o", out, "--quiet", "--cache-dir", cache)
    assert code == 0, errors
    spec = load_spec(str(path))
    expected = eager(spec)
    with load(out) as program:
        nested = program(*spec.arguments, **spec.keyword_arguments)
        results = program.flatten(nested)
    assert_same_nesting(nested, spec)
    assert len(results) == len(expected)
    reference = in_f32(spec) if expected[0].dtype == torch.bfloat16 else None
    for place, (found, wanted) in enumerate(zip(results, expected, strict=True)):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        if reference is None:
            assert distance(found, wanted) <= 1e-4
        else:
            exact = reference[place]
            assert distance(found, exact) <= 1.5 * distance(wanted, exact)


def test_a_bundle_runs_where_no_library_can_be_imported(bundle):
    """`python -I` with torch, triton and numpy made impossible to import."""
    code = (
        "import sys\n"
        "absent = ('torch', 'triton', 'numpy', 'click', 'msgpack')\n"
        "sys.modules.update(dict.fromkeys(absent))\n"
        "from aotc import runtime; program = runtime.load(sys.argv[1]); "
        "out = program(bytes(4 * 12 * 48)); print(len(bytes(out)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(bundle)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{4 * 12 * 80}\n"
