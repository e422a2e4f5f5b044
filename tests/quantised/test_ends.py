"""8-bit floats at the ends of a program: as bytes that the model views; what is said of others."""

import re

import numpy
import pytest

torch = pytest.importorskip("torch")

from aotc.aot import errors  # noqa: E402
from aotc.aot.capture.capture import capture  # noqa: E402
from aotc.aot.capture.spec import spec_of  # noqa: E402
from aotc.aot.ir.reference import interpret  # noqa: E402
from aotc.runtime.arrays.exchange import TORCH_DTYPES  # noqa: E402

pytestmark = pytest.mark.torch
KINDS = (torch.float8_e4m3fn, torch.float8_e5m2)
ALL = torch.arange(256, dtype=torch.int32).to(torch.uint8)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_bytes_are_viewed_and_given(kind):
    are_numbers = ~ALL.view(kind).float().isnan()  # the sign of what is no number is left open
    given = torch.where(are_numbers, ALL, 127)

    def model(data):
        values = data.view(kind)
        again = values.float().to(kind)
        return (
            values.view(torch.int8), again.view(torch.uint8),
            (values.float() / 3).to(kind).view(torch.uint8),
            values.reshape(2, 128).t().contiguous().view(torch.uint8),
            values[torch.tensor([5, 0, 255])].view(torch.uint8),
            torch.cat([values, again]).reshape(2, 256).view(torch.uint8),
        )  # fmt: skip

    captured = capture(spec_of(model, (given,)))
    for found, expected in zip(
        interpret(captured.graph, [given.numpy()]), model(given), strict=True
    ):
        numpy.testing.assert_array_equal(found, expected.numpy())


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_ends_of_8_bits_are_refused_with_what_to_give(kind):
    given = torch.ones(4).to(kind)
    for model, example in ((lambda x: x.float(), given), (lambda x: x.to(kind), torch.ones(4))):
        with pytest.raises(errors.EndsUnsupported) as caught:
            capture(spec_of(model, (example,)))
        assert f"x.view({kind})" in caught.value.message
        assert "--fallback" not in caught.value.hint_text


def test_the_hint_names_the_types_that_ends_have():
    names = {*re.findall(r"\w*\d+|bool", errors.EndsUnsupported.hint)}
    assert names == {*TORCH_DTYPES.values(), "complex64", "complex128"}


def test_other_types_are_to_be_converted():
    for kind in (torch.uint16, torch.uint32, torch.float8_e4m3fnuz):
        with pytest.raises(errors.EndsUnsupported, match="convert it before the call"):
            capture(spec_of(lambda x: x.float(), (torch.ones(4).to(kind),)))
