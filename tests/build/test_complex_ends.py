"""A model of complex tensors through a whole build: calls take and give them, by views."""

import pytest

numpy = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")

from aotc.runtime import load  # noqa: E402
from aotc.runtime.arrays.complexes import apart, joined  # noqa: E402
from aotc.runtime.errors import InputError, InputNotContiguous, OutputUnusable  # noqa: E402

NESTED = """
import torch


class Model(torch.nn.Module):
    def forward(self, z, rest):
        w = z * rest["turns"][0] + rest["offset"]
        return {"w": w, "size": w.abs(), "mean": [w.mean()]}


model = Model()


def example_inputs():
    z = torch.randn(3, 4, dtype=torch.complex64)
    return z, {"turns": (z[0] * 1j,), "offset": torch.arange(4.0)}
"""
RECORD = """
from dataclasses import dataclass

import torch


@dataclass
class Signal:
    z: torch.Tensor
    gain: float = 2.0


torch.utils._pytree.register_dataclass(Signal)


class Model(torch.nn.Module):
    def forward(self, signal):
        return torch.fft.fft(signal.z) * signal.gain


model = Model()
example_inputs = (Signal(torch.randn(3, 4, dtype=torch.complex64)),)
dynamic_shapes = ([{0: torch.export.Dim("rows", min=1, max=9)}, None],)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory, cache):
    from aotc.aot.cli.program import run

    folder = tmp_path_factory.mktemp("complex_ends")
    for name, text in (("nested", NESTED), ("record", RECORD)):
        path, bundle = folder / f"{name}.py", folder / name
        path.write_text(text)
        words = ["build", path, "-o", bundle, "--quiet", "--cache-dir", cache]
        assert run([str(word) for word in words]) == 0
    return folder


def given(rows=3):
    z = torch.randn(rows, 4, dtype=torch.complex64)
    return z, {"turns": (torch.randn(4, dtype=torch.complex64),), "offset": torch.arange(4.0)}


def expected(z, rest):
    w = z * rest["turns"][0] + rest["offset"]
    return w, w.abs(), w.mean()


@pytest.mark.parametrize(
    "change",
    [lambda z: z, torch.conj, lambda z: z.t().contiguous().t(), lambda z: torch.view_as_real(z)],
    ids=["plain", "conjugated", "transposed", "parts"],
)
def test_tensors_are_taken_as_they_lie(built, change):
    z, rest = given()
    with load(built / "nested") as program:
        found = program(change(z), rest)
    z = z.conj() if change is torch.conj else z
    for one, other in zip(
        (found["w"], found["size"], found["mean"][0]), expected(z, rest), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_numpys_arrays_give_numpys(built):
    z, rest = given()
    turns, offset = rest["turns"][0].numpy(), rest["offset"].numpy()
    with load(built / "nested") as program:
        found = program(z.numpy()[:, ::-1], {"turns": [turns], "offset": offset})
        w, size, _ = expected(z.flip(1), rest)
        assert found["w"].dtype == numpy.complex64
        numpy.testing.assert_allclose(found["w"], w.numpy(), rtol=1e-5)
        numpy.testing.assert_allclose(found["size"], size.numpy(), rtol=1e-5)
        flat = program(z.numpy(), turns, offset)  # a flat list of what is in the arguments
        numpy.testing.assert_allclose(flat["w"], expected(z, rest)[0].numpy(), rtol=1e-5)


def test_results_are_written_where_the_caller_says(built):
    z, rest = given()
    w, size, mean = (torch.empty_like(each) for each in expected(z, rest))
    with load(built / "nested") as program:
        program(z, rest, out={"w": w, "size": size, "mean": [mean]})
        for one, other in zip((w, size, mean), expected(z, rest), strict=True):
            torch.testing.assert_close(one, other)
        apart = torch.empty(4, 3, dtype=torch.complex64).t()
        with pytest.raises(OutputUnusable):
            program(z, rest, out={"w": apart, "size": size, "mean": [mean]})
        assert len(program.flatten(program(z, rest))) == 3


def test_copies_are_neither_written_to_nor_bound(built):
    """Of what torch conjugates by a mark beside the memory."""
    z, rest = given()
    w, size, mean = (torch.empty_like(each) for each in expected(z, rest))
    with load(built / "nested") as program:
        flat = [w.conj(), size, mean]
        for out in (flat, {"w": flat[0], "size": size, "mean": [mean]}):
            with pytest.raises(OutputUnusable, match="output `w` is conjugated"):
                program(z, rest, out=out)
        with pytest.raises(OutputUnusable, match="output `w` is conjugated"):
            program.bind(z, rest, out=flat)
        with pytest.raises(InputNotContiguous):
            program.bind(z.conj(), rest)
        bound = program.bind(z, rest)
        bound()
        z.mul_(1j)
        torch.testing.assert_close(bound()["w"], expected(z, rest)[0])


def test_parts_of_any_array():
    empty = torch.empty_like(torch.empty(()).expand(0, 4, 2))  # as results of a call are made
    assert (joined(empty).shape, joined(empty).dtype) == ((0, 4), torch.complex64)
    assert apart(numpy.complex64(1 + 2j)).tolist() == [1, 2]
    assert not apart(numpy.complex64(1 + 2j)).flags.writeable
    matrix = numpy.array([[1j, 2]]).view(numpy.matrix)
    assert apart(matrix).tolist() == [[[0, 1], [2, 0]]]


def test_what_does_not_fit_is_refused(built):
    z, rest = given()
    with load(built / "nested") as program:
        for wrong in (z.to(torch.complex128), z[:2], z.real.contiguous(), None):
            with pytest.raises(InputError):
                program(wrong, rest)


def test_a_dataclass_is_taken_whole_at_any_size(built):
    from types import SimpleNamespace

    with load(built / "record") as program:
        for rows in (1, 3, 9):
            z, _ = given(rows)
            for signal in (SimpleNamespace(z=z, gain=2.0), {"z": z}, z):
                torch.testing.assert_close(program(signal), torch.fft.fft(z) * 2)
