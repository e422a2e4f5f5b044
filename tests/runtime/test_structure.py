"""Structures: nested arguments and results by name, as the manifest's plain data."""

from __future__ import annotations

import array
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest
import small_bundle

from aotc.aot.pack import pack
from aotc.runtime import load
from aotc.runtime.bundle.manifest import Manifest, TensorSpec, frame
from aotc.runtime.bundle.schema import read, refuse, write
from aotc.runtime.bundle.structure import Part, Structure, giver
from aotc.runtime.errors import (
    BundleMalformed,
    InputCount,
    InputDtype,
    InputFixed,
    InputMissing,
    InputStructure,
    InputUnknown,
    OutputStructure,
)
from aotc.runtime.programs.arguments import Arguments

ONES = array.array("f", [1.0] * 6)
X = Part("array", 0)
BATCH = Part("dict", None, ("batch", "scale"), (Part("record", "Batch", ("x",), (X,)),
                                                Part("float", 0.5)))  # fmt: skip
RESULT = Part(
    "record",
    "Output",
    ("logits", "more"),
    (Part("array", 1), Part("tuple", parts=(X, Part("none"), Part("int", -3)))),
)


@pytest.fixture
def nested(tmp_path):
    """The small bundle that takes a record inside a dict and gives a record."""

    def write(structure=Structure(BATCH, RESULT)):  # noqa: B008  frozen
        plain = small_bundle.contents()
        entries = (plain.entries[0].replace(structure=structure),)
        contents = replace(plain, entries=entries)
        pack(contents, tmp_path / "nested", force=True)
        return tmp_path / "nested"

    return write


def test_nested_arguments_and_results(nested):
    with load(nested()) as program:
        result = program({"x": ONES})
        assert repr(result).startswith("Output(logits=<memory")
        assert result.logits is result["logits"] is result[0]
        assert result.more[0].tolist() == [[1.0] * 3] * 2
        assert result.more[1:] == (None, -3)
        assert list(result) == ["logits", "more"]
        with pytest.raises(AttributeError, match="`Output` has no field `loss`"):
            _ = result.loss


@dataclass
class Batch:
    x: object


def test_ways_to_pass_the_same_arguments(nested):
    with load(nested()) as program:
        ways = (
            program(batch=Batch(ONES)),
            program(SimpleNamespace(x=ONES), 0.5),
            program({"x": ONES}, scale=0.5),
            program(ONES),  # the flat list
            program(x=ONES),
        )
        assert all(way.more[0].tolist() == [[1.0] * 3] * 2 for way in ways)


WRONG = {
    "missing": ((), {}, InputMissing, "input `batch` is missing, expected a dict with `x`"),
    "missing inside": (({},), {}, InputMissing, r"input `batch.x` is missing, expected f32\[2, 3"),
    "unknown": ((), {"y": 1}, InputUnknown, "input `y` is not known"),
    "unknown inside": (({"x": ONES, "z": 1},), {}, InputUnknown, "`batch.z` is not known, .*`x`"),
    "another value": (({"x": ONES}, 0.25), {}, InputFixed, "`scale` is 0.25, expected 0.5"),
    "an array": (({"x": ONES}, ONES), {}, InputFixed, "is of type `array`, expected 0.5"),
    "a list": (([ONES],), {}, InputStructure, "`batch` is a list of 1, expected a dict with `x`"),
    "too many": ((1, 2, 3), {}, InputCount, "3 inputs were given, expected 2"),
}


@pytest.mark.parametrize("name", WRONG)
def test_arguments_that_do_not_fit_are_named(name, nested):
    arrays, named, error, text = WRONG[name]
    with load(nested()) as program, pytest.raises(error, match=text):
        program(*arrays, **named)


def test_out_takes_an_earlier_result_or_a_flat_list(nested):
    with load(nested()) as program:
        first = program(ONES)
        for value in first.to_tuple()[1][0], first.logits:
            memoryview(value).cast("B")[:] = bytes(value.nbytes)
        assert program(ONES, out=first) is first
        assert first.more[0].tolist() == [[1.0] * 3] * 2
        flat = [first.more[0], first.logits]
        assert program(ONES, out=flat) is flat
        with pytest.raises(OutputStructure, match=r"`out.more` is missing"):
            program(ONES, out={"logits": first.logits})
        bound = program.bind({"x": ONES})
        assert bound().more[0].tolist() == [[1.0] * 3] * 2


KINDS = {
    "dict": (Part("dict", None, ("a", "b"), (X, Part("array", 1))), {"a": 10, "b": 20}),
    "list of one": (Part("list", parts=(X,)), [10]),
    "tuple of one": (Part("tuple", parts=(X,)), (10,)),
    "text": (Part("list", parts=(Part("text", "a b"), Part("bool", False), X)), ["a b", False, 10]),
    "empty": (Part("tuple", parts=(X, Part("dict"), Part("list"))), (10, {}, [])),
}  # fmt: skip


def structure_of(tree, counts, dtype="f32", shape=(3, 2)):
    """Read and checked, as a manifest's is, of arrays of one type."""
    found = read(Structure, tree, "manifest")
    specs = ([TensorSpec(str(at), dtype, shape) for at in range(count)] for count in counts)
    refuse(found.broken(*specs), "manifest")
    return found


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_is_given_back(name):
    part, expected = KINDS[name]
    count = len(list(part.leaves()))
    found = structure_of(write(Structure, Structure(outputs=part)), (0, count))
    assert found == Structure(outputs=part)
    assert giver(found.outputs)((10, 20)) == expected


def test_named_tuples_have_fields_and_places():
    part = Part("named_tuple", "Pair", ("first", "def"), (X, Part("array", 1)))
    found = giver(part)((10, 20))
    assert found == (10, 20)
    assert (type(found).__name__, found._fields) == ("Pair", ("first", "def"))
    assert (found.first, getattr(found, "def")) == (10, 20)


BROKEN = {
    "cut off": [{"kind": "tuple", "size": 2}, {"kind": "array"}],
    "two trees": [{"kind": "array"}, {"kind": "none"}],
    "no array": [{"kind": "tuple", "size": 0}],
    "twice": [{"kind": "tuple", "size": 2}, {"kind": "array"}, {"kind": "array"}],
    "another array": [{"kind": "array", "size": 1}],
    "keys twice": [{"kind": "dict", "keys": ["a", "a"]}, {"kind": "array"}, {"kind": "none"}],
    "keys of a list": [{"kind": "list", "keys": ["a"]}, {"kind": "array"}],
    "no number": [{"kind": "tuple", "size": 2}, {"kind": "array"}, {"kind": "int", "value": "x"}],
    "too deep": [{"kind": "tuple", "size": 1}] * 40 + [{"kind": "array"}],
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_structure_is_refused(name):
    plain = {"keys": [], "size": 0, "value": ""}
    tree = {"inputs": [], "outputs": [{**plain, **row} for row in BROKEN[name]]}
    with pytest.raises(BundleMalformed, match="outputs"):
        structure_of(tree, (0, 1))


@pytest.mark.parametrize(
    ("dtype", "shape"), [("f32", (2, 3)), ("f64", ()), ("i32", (3, 2)), ("f16", (3, 2))]
)
def test_complex_arrays_are_of_two_floats_each(dtype, shape):
    tree = write(Structure, Structure(Part("dict", None, ("z",), (Part("complex", 0),)), None))
    assert structure_of(tree, (1, 1)).inputs is not None
    assert structure_of(tree, (1, 1), "f64", (2,)).inputs is not None
    with pytest.raises(BundleMalformed, match=r"inputs.*f32 or f64 with"):
        structure_of(tree, (1, 1), dtype, shape)


@pytest.mark.parametrize("give", [lambda z: ((z,), {}), lambda z: ((), {"z": z})])
def test_a_complex_array_of_another_width_is_named_as_it_is(give):
    numpy = pytest.importorskip("numpy")
    specs = (TensorSpec("z", "f32", (3, 2)),)
    arguments = Arguments(Part("dict", None, ("z",), (Part("complex", 0),)), specs)
    (parts,) = arguments.arrange(*give(numpy.ones(3, "complex64")))
    assert parts.shape == (3, 2)
    with pytest.raises(InputDtype, match="`z` has dtype complex128, expected complex64"):
        arguments.arrange(*give(numpy.ones(3, "complex128")))


def test_a_structure_is_of_an_entry(nested):
    manifest = Manifest.from_bytes((nested() / "manifest.msgpack").read_bytes())
    assert manifest.entry().structure == Structure(BATCH, RESULT)
    record = manifest.to_map()
    del record["entries"][0]["structure"]
    with pytest.raises(BundleMalformed, match=r"field `entries\[0\].structure`"):
        Manifest.from_bytes(_framed(record))


def _framed(tree):
    return frame(tree)
