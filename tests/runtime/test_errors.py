"""Errors: every class renders, has a stable code and exit code, and travels between processes."""

from __future__ import annotations

import inspect
import pickle
import string

import pytest

from aotc.runtime import errors

CLASSES = [
    each
    for _, each in inspect.getmembers(errors, inspect.isclass)
    if issubclass(each, errors.AotcError)
]
EXIT_CODES = {1, 2, 5, 6, 7, 70}


def fields_of(kind) -> dict[str, object]:
    texts = kind.template, kind.hint
    names = {name for text in texts for _, name, _, _ in string.Formatter().parse(text) if name}
    return {name: 0.5 if name in ("difference", "tolerance") else f"<{name}>" for name in names}


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_class(kind):
    fields = fields_of(kind)
    error = kind(**fields)
    assert error.exit_code in EXIT_CODES
    assert error.code == error.code.lower()
    assert not error.message.endswith(".")
    for name, value in fields.items():
        assert getattr(error, name) == value
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert error.as_map()["code"] == kind.code
    if kind.hint:
        assert str(error) == f"{error.message}\nhint: {error.hint_text}"


def test_codes_are_unique():
    codes = [kind.code for kind in CLASSES]
    assert len(set(codes)) == len(codes)


def test_families():
    assert errors.BundleTruncated.exit_code == errors.BundleError.exit_code == 6
    assert issubclass(errors.FormatTooNew, errors.IncompatibleError)
    assert errors.FormatTooNew.exit_code == 5
    assert issubclass(errors.InputShape, errors.InputError)
    assert errors.InputShape.exit_code == 2
    assert errors.DiskFull.exit_code == 7


def test_exact_text():
    error = errors.InputShape(role="input", name="x", found=[3, 64], expected=[4, 64])
    assert error.message == "input `x` has shape [3, 64], expected [4, 64]"
    assert error.found == [3, 64]
    with pytest.raises(AttributeError):
        _ = error.colour


def test_hints_fit_what_is_refused():
    """Nothing is rebuilt for an output, and a folder's rights give no memory."""
    import errno as numbers

    fields = {"name": "y", "found": [2, 9], "expected": [2, 10]}
    shape, given = (errors.InputShape(role=role, **fields) for role in ("output", "input"))
    assert "for these inputs" in shape.hint_text
    assert "rebuild" in given.hint_text
    dtype = errors.InputDtype(role="output", name="y", found="i32", expected="f32")
    assert "convert it" not in dtype.hint_text
    for number, word in ((numbers.ENOMEM, "memory"), (numbers.EMFILE, "close files")):
        fault = errors.environment_fault("map", "weights", OSError(number, "no"))
        assert word in fault.hint_text
        assert "its folder" not in fault.hint_text
