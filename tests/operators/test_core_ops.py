"""Samples of torch's operator database, built and run: every core ATen op is right or refused."""

import pytest

from benchmarks.operators.core_set import LEFT_OUT, SHARED, core_ops, records_of
from benchmarks.operators.drive import BROKEN, REFUSED, RIGHT, WRONG, drive
from benchmarks.operators.page import PROMISED
from benchmarks.operators.samples import database, dtypes_of, samples_of

pytestmark = pytest.mark.slow
LEAST_SHARE = 0.95  # of the samples, which must be right
PARTS = 10  # of an element type in the matrix, each some minutes long
# Record → what its refusal says.
REFUSALS = {
    "as_strided.partial_views": "strides over a tensor that is itself a view",
    "nn.functional.batch_norm": "the model changes",
    "nn.functional.interpolate.bilinear": "weighted resizing of `u8`",
    "nn.functional.upsample_bilinear": "weighted resizing of `u8`",
    "nonzero": "depends on data",
}


def records():
    return list(dict.fromkeys(record for op in core_ops() for record in records_of(op)))


def driven(samples, run):
    """What is to be refused is asked alone: each refusal has its whole batch captured again."""
    refused = [sample for sample in samples if sample.operator in REFUSALS]
    others = [sample for sample in samples if sample.operator not in REFUSALS]
    return drive(others, run) + drive(refused, run)


def assert_right_or_refused(outcomes):
    assert not [outcome for outcome in outcomes if outcome.verdict in (WRONG, BROKEN)]
    refused = [outcome for outcome in outcomes if outcome.verdict == REFUSED]
    unexpected = [
        outcome
        for outcome in refused
        if REFUSALS.get(outcome.operator, "no refusal expected") not in outcome.reason
    ]
    assert not unexpected
    assert sum(outcome.verdict == RIGHT for outcome in outcomes) >= LEAST_SHARE * len(outcomes)


def test_every_core_op_has_samples_or_says_why_not():
    without = [op for op in core_ops() if not records_of(op)]
    assert set(without) == {*LEFT_OUT, *SHARED} & set(core_ops())
    unknown = [record for record in records() if record not in database()]
    assert not unknown


def test_the_first_sample_of_each_op_in_f32(run):
    samples = [each for name in records() for each in first(name, ("f32",))]
    assert_right_or_refused(driven(samples, run))


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(part, marks=pytest.mark.nightly) for part in (1, 2))]
)
def test_the_first_sample_of_each_op_in_an_integer_type_or_bool(run, part):
    """Whole numbers take the same rows; a third of the ops shows that the types are asked for."""
    names = records()[part::3]
    samples = [each for name in names for each in first(name, ("i64", "bool", "i32"))]
    assert_right_or_refused(driven(samples, run))


def first(record, dtypes):
    """One sample, in the first of the element types that the op has."""
    supported = [name for name in dtypes if name in dtypes_of(record)]
    return samples_of(record, supported[0], 1) if supported else []


@pytest.mark.matrix
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("dtype", [*PROMISED, "f64"])
def test_all_samples(run, dtype, part):
    outcomes = []
    for record in records()[part::PARTS]:
        if dtype in dtypes_of(record):
            outcomes += drive(samples_of(record, dtype), run)
    assert not [outcome for outcome in outcomes if outcome.verdict in (WRONG, BROKEN)]


def test_a_refusal_names_the_line_of_each_call(run):
    samples = [*samples_of("nonzero", "f32", 1), *samples_of("add", "f32", 1)]
    found = drive(samples, run)
    assert [outcome.verdict for outcome in found] == [REFUSED, RIGHT]
    assert "aten.nonzero.default" in found[0].reason
