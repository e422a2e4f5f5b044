"""The runner of Inductor's tests tells what passed from what is wrong and what does not apply."""

from __future__ import annotations

import ast
import textwrap

import pytest
import torch

from benchmarks.inductor_source import cleared
from benchmarks.inductor_tests import Jobs, Result, judge, page
from benchmarks.inductor_worker import NEAR, OURS, Outcome, _judging, said

FILE = """
    import os
    import unittest

    import torch
    from torch._inductor.compile_fx import compile_fx
    from torch._inductor.utils import run_and_get_code


    class TestCase(unittest.TestCase):
        pass


    def check_model(self, model, inputs):
        def compiler(module, given):
            return compile_fx(module, given)

        torch.testing.assert_close(torch._dynamo.optimize(compiler)(model)(*inputs), model(*inputs))


    class CommonTemplate:
        def test_good(self):
            self.common(lambda x: x.sin() + 1, (torch.randn(7),))

        def test_left(self):
            self.common(lambda x: torch.linalg.inv(x) * 2, (torch.eye(3) * 4,))

        def test_code_and_right_numbers(self):
            model = torch.compile(lambda x: x + 1)
            result, (code,) = run_and_get_code(model, torch.zeros(3))
            self.assertIn("kernel_of_inductor", code)
            self.assertEqual(torch._inductor.metrics.generated_kernel_count, 1)
            torch.testing.assert_close(result, torch.ones(3))

        def test_code_and_wrong_numbers(self):
            model = torch.compile(lambda x: x + 1)
            result, (code,) = run_and_get_code(model, torch.zeros(3))
            self.assertIn("kernel_of_inductor", code)
            torch.testing.assert_close(result, torch.zeros(3))

        def test_no_graph(self):
            assert torch.zeros(3).sum() == 0

        def test_ended(self):
            torch.compile(lambda x: x + 1)(torch.zeros(3))
            os._exit(3)

        def test_other(self):
            self.common(lambda x: x.no_such_method(), (torch.randn(7),))

        def test_skipped(self):
            raise unittest.SkipTest("no such device")
"""


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    path = tmp_path_factory.mktemp("inductor") / "tests_of_torch.py"
    path.write_text(textwrap.dedent(FILE))
    jobs, results = Jobs(path, 1, 100), []
    try:
        jobs.judge_all(jobs.names, results.append)
    finally:
        jobs.close()
    return {row.name: row for row in results}


def test_outcomes(judged):
    outcomes = {name: row.outcome for name, row in judged.items()}
    assert outcomes == {
        "test_good": "passed",
        "test_left": "left",
        "test_code_and_right_numbers": "passed",
        "test_code_and_wrong_numbers": "other",
        "test_no_graph": "own",
        "test_ended": "other",
        "test_other": "other",
        "test_skipped": "other",
    }
    assert judged["test_left"].regions_left == 1
    assert "aten.linalg_inv_ex" in judged["test_left"].reason
    assert judged["test_code_and_right_numbers"].dropped_checks == 2
    text = page(list(judged.values()), "a file of this test")
    assert "Of 8 tests 3 apply; 3 of these passed (100.0 %), 2 of them without Inductor." in text
    assert "From 2 tests checks" in text


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ({OURS: Outcome("passed", graphs=1)}, "passed"),
        ({OURS: Outcome("passed", "", 1, 1)}, "left"),
        ({OURS: Outcome("skipped", graphs=1)}, "other"),
        ({OURS: Outcome("passed")}, "own"),
        ({OURS: Outcome("failed"), "aot_eager": Outcome("passed")}, "own"),
        ({OURS: Outcome("failed"), "aot_eager": Outcome("passed", graphs=1)}, "failed"),
        ({OURS: Outcome("wrong", graphs=1), "aot_eager": Outcome("failed")}, "other"),
        (
            {OURS: Outcome("wrong", graphs=1), "aot_eager": Outcome("passed", graphs=1),
             NEAR: Outcome("wrong")},
            "wrong",
        ),
        (
            {OURS: Outcome("wrong", graphs=1), "aot_eager": Outcome("passed", graphs=1),
             NEAR: Outcome("passed")},
            "sums",
        ),
        ({OURS: Outcome("slow", graphs=1), "aot_eager": Outcome("passed", graphs=1)}, "slow"),
    ],
)  # fmt: skip
def test_verdicts(outcomes, expected):
    assert judge("test_it", outcomes.__getitem__).outcome == expected


def test_what_is_as_near_as_eager_is_no_error():
    inputs = (torch.tensor([1.0, 1e-3]),)

    def judged(factor, eager_factor):
        model = lambda x: x * (1 if x.dtype == torch.float64 else eager_factor)  # noqa: E731
        return _judging(lambda model: lambda x: x * factor)(model)(*inputs)

    judged(1 + 1e-7, 1)
    judged(1 + 9e-4, 1 - 1e-3)
    with pytest.raises(AssertionError):
        judged(1 + 2e-3, 1 - 1e-3)


def test_checks_of_code_go_and_those_of_numbers_stay():
    tree, counts = cleared(
        textwrap.dedent("""
        class CommonTemplate:
            def test_it(self):
                result, (code,) = run_and_get_code(model, x)
                more = run_and_get_triton_code(model, x)
                FileCheck().check("kernel").run(code)
                lines = code.split("kernel")
                for line in lines:
                    self.assertIn("kernel", line)
                self.assertEqual(result, expected)
                self.assertEqual(torch._inductor.metrics.generated_kernel_count, 1)
                self.assertEqual(run_and_get_code(model, x)[0], expected)
                code = model(x)
                self.assertEqual(code, expected)
                if "kernel" in more:
                    self.fail()
        """)
    )
    text = ast.unparse(tree)
    assert counts == {"test_it": 5}
    assert text.count("expected)") == 3
    assert "kernel" not in text.replace("run_and_get", "")


def test_messages_name_no_directories():
    message = (
        "no 'x' in /a/b/site-packages/torch/it.py: see https://github.com/a/b/issues/1 and a/b"
    )
    expected = "no 'x' in it.py: see https://github.com/a/b/issues/1 and a/b"
    assert said(message) == expected
    assert said("it failed\n\nTo execute this test, run python /a/b.py") == "it failed"
    assert "site-packages" not in page([Result("test_it", "failed", message)], "a file")


def test_the_page_says_whether_sizes_vary():
    assert page([], "a file").startswith("# Inductor's own tests\n")
    text = page([], "a file", is_dynamic=True)
    assert text.startswith("# Inductor's own tests, with sizes that vary\n")
    assert "`python -m benchmarks.inductor_tests --dynamic`" in text
