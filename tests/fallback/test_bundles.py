"""Bundles that run ops through torch, against eager torch."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from aotc.aot.capture.user_code import import_code  # noqa: E402
from aotc.runtime import check, load  # noqa: E402
from aotc.runtime.errors import FallbackFailed, FallbackResult  # noqa: E402

SPEC = Path(__file__).with_name("ops_of_torch.py")
OPS = {
    "aotc_fallback::counted": 2,
    "aotc_fallback::exchanged": 1,
    "aotc_fallback::halved": 1,
    "aotc_fallback::joined": 1,
    "aotc_fallback::least": 1,
    "aotc_fallback::scaled": 1,
    "aten::linalg_lu_factor": 1,
    "aten::linalg_qr": 1,
    "aten::linalg_solve": 1,
    "aten::special_bessel_j0": 2,
    "aten::special_bessel_j1": 1,
}
pytestmark = [pytest.mark.torch, pytest.mark.triton]


# For each test anew: whoever imports the file registers its ops again, as builds do, and torch
# forgets those that functions of the earlier module call.
@pytest.fixture
def case(torch_bundle):
    return import_code(str(SPEC))


@pytest.fixture(scope="session")
def eager(torch_bundle):
    case = import_code(str(SPEC))
    with torch.no_grad():
        return {seed: case.model(*case.inputs(seed)) for seed in range(4)}


@pytest.fixture
def program(torch_bundle, case):
    with load(torch_bundle) as opened:
        yield opened


def assert_equal(found, expected):
    assert set(expected) == {spec for spec in expected if found[spec] is not None}
    for name, tensor in expected.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape), name
        torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-5, msg=name)


def test_each_output_has_eager_numbers_at_every_call(program, case, eager):
    for seed, expected in eager.items():  # a second call starts from memory as the first left it
        assert_equal(program(*case.inputs(seed)), expected)


def test_every_call_of_torch_is_counted(program, case):
    assert program.fallback_calls == dict.fromkeys(OPS, 0)
    program(*case.inputs(0))
    program(*case.inputs(1))
    assert program.fallback_calls == {name: 2 * count for name, count in OPS.items()}


def test_threads_have_arenas_of_their_own(program, case, eager):
    def call(seed):
        return program(*case.inputs(seed))

    with ThreadPoolExecutor(4) as pool:
        seeds = [*eager] * 8
        for seed, found in zip(seeds, pool.map(call, seeds), strict=True):
            assert_equal(found, eager[seed])
    assert program.fallback_calls["aten::special_bessel_j0"] == 2 * 32


def test_sessions_bound_calls_and_given_outputs(program, case, eager):
    with program.session() as session:
        first = session(*case.inputs(0))
        assert_equal(session(*case.inputs(1), out=first), eager[1])
        assert_equal(first, eager[1])
    x, y = case.inputs(2)
    with program.bind(x, y) as bound:
        assert_equal(bound(), eager[2])
        x.copy_(case.inputs(3)[0])
        y.copy_(case.inputs(3)[1])
        assert_equal(bound(), eager[3])


def test_arrays_of_other_libraries_and_strides(program, case, eager):
    x, y = case.inputs(1)
    found = program(x.numpy(), y.numpy())
    assert_equal({name: torch.from_numpy(array) for name, array in found.items()}, eager[1])
    assert_equal(program(x.T.contiguous().T, y), eager[1])


def test_the_callers_modes_do_not_reach_the_ops(program, case, eager):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_equal(program(*case.inputs(1)), eager[1])
    assert not any(tensor.requires_grad for tensor in program(*case.inputs(1)).values())


def test_what_torch_raises_is_an_error_of_the_call(program, case, eager):
    zeros = [torch.zeros_like(each) for each in case.inputs(0)]
    with pytest.raises(FallbackFailed, match=r"`aten::linalg_solve`.*LinAlgError") as caught:
        program(*zeros)
    assert caught.value.__cause__ is not None
    assert_equal(program(*case.inputs(1)), eager[1])


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        (lambda x: torch.zeros(3), r"is float32\[3\], expected float32\[7, 5\]"),
        (lambda x: x.double(), r"is float64\[7, 5\]"),
        (lambda x: (x, x), "is one of 2, expected one of 1"),
        (lambda x: 3, "is of type `int`"),
    ],
)
def test_another_result_than_at_the_build_is_refused(program, case, changed, found):
    program._fallback.ops["aten::special_bessel_j1"] = changed
    with program.session() as session, pytest.raises(FallbackResult, match=found) as caught:
        session(*case.inputs(0))
    assert caught.value.op == "aten::special_bessel_j1"


def run_python(code):
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


LOAD = """
from aotc.runtime import IncompatibleError, check, load
rows = check({path!r})
assert [row.code for row in rows] == ["fallback-unavailable"], rows
assert [row.field for row in rows] == ["torch"], rows
try:
    load({path!r})
except IncompatibleError as error:
    print(error.code, error.exit_code, *error.ops, sep="|")
    print(error)
"""


def test_without_torch_every_op_is_named(torch_bundle):
    hidden = "import sys; sys.modules['torch'] = None\n"
    text = run_python(hidden + LOAD.format(path=str(torch_bundle)))
    assert text.splitlines()[0] == "|".join(["fallback-unavailable", "5", *sorted(OPS)])
    assert "torch, which is absent" in text
    assert "pip install torch" in text


def test_ops_of_a_library_that_was_not_imported_are_named(torch_bundle):
    text = run_python(LOAD.format(path=str(torch_bundle)))
    own = [name for name in sorted(OPS) if name.startswith("aotc_fallback")]
    assert text.splitlines()[0] == "|".join(["fallback-unavailable", "5", *own])
    assert "import what registers `torch.ops.aotc_fallback`" in text


def test_check_and_verify_find_nothing_wrong(torch_bundle, aotc, case):
    assert check(torch_bundle) == []
    code, text, errors = aotc("verify", torch_bundle, "--import", SPEC)
    assert code == 0, errors + text


def test_inspect_names_ops_with_their_calls_and_lines(torch_bundle, aotc):
    record = json.loads(aotc("inspect", torch_bundle, "--json")[1])
    assert {row["name"]: row["calls"] for row in record["torch_ops"]} == OPS
    assert all("ops_of_torch.py:" in row["sources"][0] for row in record["torch_ops"])
    assert "torch" in record["features"]
    text = aotc("inspect", torch_bundle, "--kernels")[1]
    assert "torch    runs `aten::special_bessel_j0`, 2 in each call at ops_of_torch.py:" in text
    assert text.count("  torch  ") == sum(OPS.values())


def test_the_commands_run_such_bundles(torch_bundle, aotc, case):
    code, text, errors = aotc("run", torch_bundle, "--import", SPEC)
    assert code == 0, errors
    assert "solved: f32[5, 5]" in text
    code, text, errors = aotc("profile", torch_bundle, "--repetitions", "1", "--json")
    assert code == 0, errors
    names = [row["name"] for row in json.loads(text)["launches"]]
    assert names.count("torch aten::special_bessel_j0") == 2
    options = ("--rounds", "1", "--seconds", "0.01")
    code, text, errors = aotc("bench", torch_bundle, SPEC, *options)
    assert code == 0, errors
    assert "aotc" in text


def test_tune_keeps_the_calls(torch_bundle, aotc, cache, tmp_path, case, eager):
    options = ("--quiet", "--cache-dir", cache, "--tune-budget", "0.001")
    code, _, errors = aotc("tune", torch_bundle, "-o", tmp_path / "tuned", *options)
    assert code == 0, errors
    with load(tmp_path / "tuned") as program:
        assert_equal(program(*case.inputs(1)), eager[1])
        assert program.fallback_calls == OPS


def test_programs_without_such_ops_count_nothing(bundle):
    with load(bundle) as program:
        assert program.fallback_calls == {}


def test_a_closed_program_has_let_go_of_its_memory(torch_bundle, case):
    program = load(torch_bundle)
    session = program.session()
    program(*case.inputs(0))
    program.close()
    session.close()
    session.close()
    assert program.fallback_calls == OPS
