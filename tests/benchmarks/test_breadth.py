"""The parts of the breadth figures: small configs, inputs by name, verdicts, a page."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from benchmarks.breadth import page, transformers_models  # noqa: E402  needs transformers
from benchmarks.breadth.judge import (  # noqa: E402
    BROKEN,
    NOT_EXPORTED,
    OTHERWISE,
    RIGHT,
    UNJUDGED,
    WRONG,
    Outcome,
    judged,
)
from benchmarks.breadth.judge import _distance as distance  # noqa: E402
from benchmarks.breadth.shrink import small  # noqa: E402

pytestmark = pytest.mark.torch


def test_sizes_that_have_to_agree_do():
    config = small(transformers.CLIPConfig())
    assert config.text_config.hidden_size == config.vision_config.hidden_size == 64
    assert config.vision_config.image_size == 4 * config.vision_config.patch_size
    llama = small(transformers.LlamaConfig())
    assert (llama.hidden_size, llama.num_hidden_layers, llama.vocab_size) == (64, 2, 320)


def test_a_type_gives_a_model_and_inputs_on_which_it_runs():
    model, arguments = transformers_models.make("bert")
    assert type(model).__name__ == "BertModel"
    assert model(**arguments).last_hidden_state.isfinite().all()


def test_a_model_is_built_run_and_judged(cache):
    from aotc.aot.tasks.workers import Workers

    def make(_name):
        return torch.nn.Linear(4, 3).eval(), {"input": torch.randn(2, 4)}

    setting = {"cache_dir": cache, "target": "cpu", "tune": "off", "dtype": "f32"}
    with Workers(1) as staff:
        outcome = judged("linear", make, setting, staff)
    assert (outcome.verdict, outcome.reason) == (RIGHT, "")
    assert 0 < outcome.difference < 1e-5


def test_a_difference_is_of_the_scale_and_nan_is_not_right():
    wide = torch.tensor([1.0, -4.0, float("nan")], dtype=torch.float64)
    assert distance(torch.tensor([1.0, -4.0, float("nan")]), wide) == 0
    assert distance(torch.tensor([1.0, -3.0, float("nan")]), wide) == 0.25
    assert distance(torch.tensor([1.0, float("nan"), float("nan")]), wide) == float("inf")


class Chooser(torch.nn.Module):
    """In f64 it answers otherwise than in f32."""

    def __init__(self, is_drawn):
        super().__init__()
        self.is_drawn = is_drawn

    def forward(self, input):
        far = input.sum() * 0 + (5.0 if input.dtype == torch.float64 else 1.0)
        return input + far + (torch.rand(4) if self.is_drawn else 0)


@pytest.mark.parametrize(("is_drawn", "verdict"), [(False, RIGHT), (True, UNJUDGED)])
def test_what_eager_decides_otherwise_in_f64_is_held_beside_eager(cache, is_drawn, verdict):
    from aotc.aot.tasks.workers import Workers

    def make(_name):
        return Chooser(is_drawn).eval(), {"input": torch.randn(2, 4)}

    setting = {"cache_dir": cache, "target": "cpu", "tune": "off", "dtype": "f32"}
    with Workers(1) as staff:
        outcome = judged("chooser", make, setting, staff)
    assert outcome.verdict == verdict
    assert outcome.reason.startswith(OTHERWISE)
    assert outcome.eager > 0.1


def test_the_page_counts_what_export_takes():
    found = [Outcome(name, "", name) for name in (RIGHT, WRONG, BROKEN, NOT_EXPORTED)]
    found.append(Outcome("far", "", NOT_EXPORTED, reason="no /home/me/lib/it.py, https://a.b/c"))
    text = page.render("it", found, {"command": "it -o /tmp/it.md"}, 9)
    assert "**1 of 3 that torch.export takes build and are right: 33.3 %**" in text
    assert "tried: 5 of 9" in text
    assert "| no it.py, https://a.b/c |" in text
    assert "- command: it -o it.md" in text
