"""Bad models from the command line: a typed error, its exit code, and nothing written."""

import pytest

pytest.importorskip("torch")

CASES = {
    "no model": ("example_inputs = ()\n", 2, ("`model`",)),
    "no inputs": ("def model(x):\n    return x\n", 2, ("example_inputs",)),
    "import error": ("import torch\nimport no_such_module\n", 3, ("no_such_module", ":2")),
    "raises": (
        "import torch\n\n\ndef model(x):\n    return x @ torch.ones(3, 3)\n\n\n"
        "example_inputs = (torch.ones(2, 2),)\n",
        3,
        (":5",),
    ),
    "wrong inputs": (
        "import torch\n\n\ndef model(x):\n    return x + 1\n\n\n"
        "example_inputs = (torch.ones(2), torch.ones(2))\n",
        2,
        (),
    ),
    "unsupported": (
        "import torch\n\n\ndef model(x):\n    a = torch.linalg.svd(x)[1]\n"
        "    return a, torch.linalg.det(x)\n\n\nexample_inputs = (torch.ones(4, 4),)\n",
        3,
        ("svd", "det", ":5", ":6"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_models(name, aotc, cache, tmp_path):
    text, expected, words = CASES[name]
    path = tmp_path / "bad.py"
    path.write_text(text)
    arguments = ("build", path, "-o", tmp_path / "out", "--quiet", "--cache-dir", cache)
    code, out, errors = aotc(*arguments)
    assert code == expected, errors
    assert out == ""
    assert errors.startswith("error: ")
    assert "Traceback" not in errors
    for word in words:
        assert word in errors
    assert [item.name for item in tmp_path.iterdir() if item.name != "__pycache__"] == ["bad.py"]
