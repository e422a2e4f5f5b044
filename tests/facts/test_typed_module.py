"""The module that `aotc stubs` writes: whatever a bundle says, it holds no code but ours."""

import ast
import keyword
import warnings

import pytest
import small_bundle
from hypothesis import given, settings
from hypothesis import strategies as st

from aotc.aot.facts.typed_module import typed_module
from aotc.aot.pack import pack
from aotc.runtime.bundle.manifest import Entry, TensorSpec
from aotc.runtime.bundle.opened import read_bundle
from aotc.runtime.bundle.signature import Dim
from aotc.runtime.bundle.structure import Part, Structure

HOSTILE = (
    '""" + print("attack") + """',
    '"""; print("attack"); """',
    '\\""" + print("attack") + """',
    '") -> print("attack"): #',
    "x=print('attack')",
    "a\\",
    "x\u00b2",
    "\u00b2",
    "class",
    "None",
    "self",
    "out",
    "result",
    "given",
    "runtime",
    "Array",
    "__class__",
    " ",
    "-",
    "1",
)
LETTERS = "aZ_1.é²ﬁ\"'\\(){}:;#% "
NAMES = st.sampled_from(HOSTILE) | st.text(LETTERS, min_size=1, max_size=9)
FIXED = st.one_of(
    st.builds(Part, st.just("none")),
    st.builds(Part, st.just("bool"), st.booleans()),
    st.builds(Part, st.just("int"), st.integers()),
    st.builds(Part, st.just("float"), st.floats()),
    st.builds(Part, st.just("text"), NAMES),
)


def keyed(kind, value, keys, below):
    return Part(kind, value, tuple(keys), tuple(below[: len(keys)]))


PARTS = st.recursive(
    FIXED | st.just(Part("array", 0)) | st.just(Part("seed", 0)),
    lambda inner: st.one_of(
        st.builds(lambda kind, parts: Part(kind, parts=tuple(parts)),
                  st.sampled_from(["tuple", "list"]), st.lists(inner, max_size=3)),
        st.builds(keyed, st.sampled_from(["dict", "record", "named_tuple"]), NAMES,
                  st.lists(NAMES, unique=True, max_size=3),
                  st.lists(inner, min_size=3, max_size=3)),
    ),
    max_leaves=6,
)  # fmt: skip
SPECS = st.lists(NAMES, min_size=1, max_size=3, unique=True).map(
    lambda names: tuple(TensorSpec(name, "f32", (2, 3)) for name in names)
)
ROOTS = st.builds(
    keyed, st.just("dict"), st.none(), st.lists(NAMES, unique=True, max_size=3),
    st.lists(PARTS, min_size=3, max_size=3),
)  # fmt: skip
ENTRIES = st.builds(
    Entry,
    st.sampled_from(["forward", "decode", "class", "untyped", "Program", "load", "_x"]),
    SPECS,
    SPECS,
    st.builds(Structure, st.none() | ROOTS, st.none() | PARTS),
    st.lists(st.builds(Dim, NAMES, st.just(1), st.just(5), st.just(0), st.just(0)), max_size=2).map(
        tuple
    ),
)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    path = tmp_path_factory.mktemp("stubs") / "bundle"
    pack(small_bundle.contents(), path)
    return read_bundle(path, lambda opened: opened.manifest)


def called_by(tree):
    """What a module calls, as text."""
    return {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


@settings(max_examples=30)
@given(st.data())
def test_a_module_has_no_code_but_ours_and_can_be_imported(manifest, data):
    entries = data.draw(st.lists(ENTRIES, min_size=1, max_size=2, unique_by=lambda row: row.name))
    hostile = manifest.replace(entries=tuple(entries))
    name = data.draw(NAMES) + data.draw(st.sampled_from(["", "\n", "\r", "\x1b[2J"]))
    for is_stub in (False, True):
        text = typed_module(hostile, name, "0" * 64, is_stub)
        with warnings.catch_warnings(action="error"):
            tree = ast.parse(text)
        allowed = {"TypeVar", "runtime.load", "Program", "Session", "self._called.close",
                   "self._called.session", "self._called", "self.close", "float"}  # fmt: skip
        allowed |= {f"self._called['{entry.name}']" for entry in entries}
        assert called_by(tree) <= allowed
        strings = [
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and not isinstance(node.value, ast.Call)
        ]
        assert all(isinstance(each, ast.Constant) for each in strings)
        classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
        assert classes.count("Program") == classes.count("Session") == 1
        assert len(classes) == len(set(classes))
        if not is_stub:
            module = {"__name__": "stubs"}
            exec(compile(tree, "stubs", "exec"), module)
            methods = vars(module["Program"])
            assert {"close", "session", "untyped", "__enter__", "__exit__"} <= methods.keys()
            assert isinstance(methods["untyped"], property)
            assert module["Array"].__name__ == "Array"


def test_every_entry_has_a_method_of_a_name_that_can_be_written(manifest):
    (entry,) = manifest.entries
    names = ("class", "decode", "untyped", "lambda")
    hostile = manifest.replace(entries=tuple(entry.replace(name=name) for name in names))
    tree = ast.parse(typed_module(hostile, "bundle", "0" * 64, False))
    (program,) = (node for node in tree.body if getattr(node, "name", "") == "Program")
    methods = {node.name for node in program.body if isinstance(node, ast.FunctionDef)}
    assert {"class_", "decode", "untyped_", "lambda_", "untyped"} <= methods
    assert not any(keyword.iskeyword(name) for name in methods)
