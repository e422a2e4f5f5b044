"""Options of `backend="aotc"`: what is unknown or wrong is named."""

from __future__ import annotations

import pytest
import torch

from aotc.aot.dynamo import aotc
from aotc.aot.dynamo.errors import OptionInvalid, OptionUnknown
from aotc.aot.dynamo.options import read_options
from aotc.runtime.drivers.cpu.driver import best_isa, features

pytestmark = pytest.mark.torch


def test_the_defaults_leave_to_inductor_what_we_cannot_compile():
    chosen = read_options(None)
    assert chosen.fallback == "inductor"
    assert chosen.target == f"cpu-{best_isa(features())}"


def test_an_unknown_option_is_named_with_the_known_ones():
    with pytest.raises(OptionUnknown, match=r"`fall_back` .*fallback, target, threads, tune"):
        read_options({"fall_back": "eager"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fallback", "nothing"),
        ("target", "toaster"),
        ("target", "cuda:sm_90"),
        ("target", "cuda"),
        ("threads", -1),
        ("tune", "some"),
    ],
)
def test_a_wrong_value_is_named(name, value):
    with pytest.raises(OptionInvalid, match=f"option `{name}` is {value!r}"):
        read_options({name: value})


def test_a_mode_of_torch_says_how_kernels_are_chosen():
    assert read_options(None, "max-autotune").tune == "full"
    assert read_options(None, "reduce-overhead") == read_options(None)
    with pytest.raises(OptionInvalid, match=r"option `mode` is 'fast', expected one of default, "):
        read_options(None, "fast")


@pytest.mark.parametrize("backend", ["aotc", "aotc_rewrite"])
def test_a_mode_that_nobody_knows_is_refused(backend, fresh):
    compiled = torch.compile(lambda x: x + 1, backend=backend, mode="fast")
    with pytest.raises(Exception, match="option `mode` is 'fast'"):
        compiled(torch.ones(2))


def test_the_error_reaches_who_calls_the_compiled_function(fresh):
    compiled = torch.compile(lambda x: x + 1, backend=aotc, options={"speed": "more"})
    with pytest.raises(Exception, match="option `speed` of backend `aotc` is not known"):
        compiled(torch.ones(2))
