"""Models of features drawn at random, built, beside eager torch, and in each command.

A seed draws two to four parts of `drawn_features.py`, fixed rows or a dim, one entry point or two,
and the order of it all. What is built is called as a session and by the program itself, at several
sizes, with the weights of the build and with others; then commands read and run the bundle.
"""

from __future__ import annotations

import random
from copy import deepcopy

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from torch.utils import _pytree as pytree  # noqa: E402

from aotc import aot, kernels, runtime  # noqa: E402
from tests.pairs import drawn_features as features  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.triton,
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
OFTEN, SEEDS = 6, 80
ROWS = [
    pytest.param(seed, marks=[] if seed < OFTEN else pytest.mark.nightly) for seed in range(SEEDS)
]
# Each pair that once gave another answer than eager, or none.
FOUND = (
    ((features.State, features.Quantised), False),
    ((features.Kernel, features.Dropout), True),
    ((features.Record, features.Image), True),
)
EXAMPLE, LARGEST = 5, features.LENGTH


def drawn(seed):
    """(parts, whether rows vary, whether there are two entry points)."""
    source = random.Random(seed)
    parts = source.sample(features.PARTS, source.choice((2, 3, 3, 4)))
    return parts, source.random() < 0.6, source.random() < 0.4


def check(found, wanted, tolerance):
    left, right = pytree.tree_leaves(found), pytree.tree_leaves(wanted)
    assert len(left) == len(right)
    for one, other in zip(left, right, strict=True):
        if not isinstance(other, torch.Tensor):
            assert one == other
            continue
        assert one.dtype == other.dtype
        scale = max(1.0, float(other.abs().max()))
        torch.testing.assert_close(one, other, rtol=0, atol=tolerance * scale)


def eager(model, *arguments):
    with torch.no_grad(), kernels.on_cpu():
        return model(*deepcopy(arguments))


def build(model, is_dynamic, has_entries, out, cache):
    example = model.example(EXAMPLE)
    rows = torch.export.Dim("rows", min=1, max=LARGEST)
    shapes = model.shapes(rows) if is_dynamic else None
    options = {name: value for part in model.parts for name, value in part.options.items()}
    given = {"dynamic_shapes": shapes}
    if has_entries:
        of_scores = ({0: rows},) if is_dynamic else None
        entries = {
            "forward": aot.EntryPoint(example, shapes),
            "scores": aot.EntryPoint((example[0],), of_scores),
        }
        example, given = None, {"entry_points": entries}
    aot.build(model, example, out, cache_dir=str(cache), **given, **options)


def follow(model, is_dynamic, has_entries, bundle, tolerance):
    """Calls beside eager torch's, in a session and not."""
    sizes = (EXAMPLE, 1, LARGEST, 2, EXAMPLE) if is_dynamic else (EXAMPLE,) * 3
    with runtime.load(bundle) as program:
        reference, session = deepcopy(model), program.session()
        for rows in sizes:
            arguments = model.example(rows)
            check(session(*deepcopy(arguments)), eager(reference, *arguments), tolerance)
        if has_entries:
            x = torch.randn(EXAMPLE, features.COLUMNS)
            check(session.scores(x), eager(reference.scores, x), tolerance)
        arguments, other = model.example(EXAMPLE), deepcopy(model)
        check(program(*arguments), eager(deepcopy(model), *arguments), tolerance)
        with torch.no_grad():
            for each in other.parameters():
                each.mul_(0.75)
        program.load_weights(other.state_dict())
        program.reset()
        check(program(*arguments), eager(deepcopy(other), *arguments), tolerance)
        program.reset_weights()
        program.reset()
        check(program(*arguments), eager(deepcopy(model), *arguments), tolerance)


def compare(parts, is_dynamic, has_entries, cache, folder, aotc):
    model, bundle = features.Model(parts).eval(), folder / "bundle"
    build(model, is_dynamic, has_entries, bundle, cache)
    tolerance = 0.05 if features.Quantised in parts else 2e-4
    follow(model, is_dynamic, has_entries, bundle, tolerance)
    entry = ("--entry", "scores") if has_entries else ()
    for line in (
        ("verify", bundle),
        ("inspect", bundle, "--kernels", "--json"),
        ("run", bundle, "--seed", "3", *entry),
        ("profile", bundle, "--repetitions", "1", *entry),
        ("report", bundle, "-o", folder / "report.html"),
        ("stubs", bundle, "-o", folder / "stubs.py"),
        ("diff", bundle, bundle),
    ):
        code, text, errors = aotc(*line)
        assert code == 0, f"{line[0]}: {text}{errors}"
    compile((folder / "stubs.py").read_text(), "stubs.py", "exec")


@pytest.mark.parametrize("seed", ROWS)
def test_features_drawn_together(seed, cache, tmp_path, aotc):
    torch.manual_seed(seed)
    compare(*drawn(seed), cache, tmp_path, aotc)


@pytest.mark.parametrize(("parts", "is_dynamic"), FOUND)
def test_features_that_once_did_not_go_together(parts, is_dynamic, cache, tmp_path, aotc):
    torch.manual_seed(1)
    compare(parts, is_dynamic, False, cache, tmp_path, aotc)
