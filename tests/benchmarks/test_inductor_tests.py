"""The runner of Inductor's tests tells what passed from what is wrong and what does not apply."""

from __future__ import annotations

import textwrap

import pytest
import torch

from benchmarks import inductor_tests

FILE = """
    import unittest

    import torch
    from torch._inductor.compile_fx import compile_fx


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

        def test_wrong(self):
            compiled = torch.compile(lambda x: x + 1)
            torch.testing.assert_close(compiled(torch.zeros(3)), torch.zeros(3))

        def test_other(self):
            self.common(lambda x: x.no_such_method(), (torch.randn(7),))

        def test_skipped(self):
            raise unittest.SkipTest("no such device")
"""


@pytest.fixture
def judged(tmp_path):
    path = tmp_path / "tests_of_torch.py"
    path.write_text(textwrap.dedent(FILE))
    tests = inductor_tests._load(path)
    case = inductor_tests._case(tests)
    names = [name for name in dir(case) if name.startswith("test_")]
    yield {name: inductor_tests.judge(tests, case, name, 100) for name in names}
    torch._dynamo.reset()


def test_outcomes(judged):
    outcomes = {name: row.outcome for name, row in judged.items()}
    assert outcomes["test_good"] == "passed"
    assert outcomes["test_left"] == "left"
    assert judged["test_left"].regions_left == 1
    assert outcomes["test_skipped"] == outcomes["test_other"] == outcomes["test_wrong"] == "other"
    text = inductor_tests.page(list(judged.values()), "a file of this test")
    assert "Of 5 tests 2 apply; 2 of these passed (100.0 %), 1 of them without Inductor." in text
