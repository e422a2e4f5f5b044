"""The examples' kernels under compute-sanitizer, with one allocation for each buffer and weight."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
MODELS = ("mlp_block_bf16", "mlp_block_silu_rms", "small_cnn", "transformer_encoder")
FOUND_ERRORS = 9


@pytest.fixture(scope="session")
def bundle_of(tmp_path_factory):
    """`bundle_of(model)`: an example built for the device here, each once."""
    folder, built = tmp_path_factory.mktemp("sanitized"), {}

    def build(model):
        if model not in built:
            out = folder / model
            command = [sys.executable, "-m", "aotc.aot.cli", "build", EXAMPLES / f"{model}.py"]
            command += ["-o", out, "--target", "cuda", "--quiet", "--cache-dir", folder / "cache"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr + done.stdout
            built[model] = out
        return built[model]

    return build


def verified(bundle, *before):
    """The process that verifies a bundle, behind the words of a checker."""
    environment = {**os.environ, "AOTC_SEPARATE_BUFFERS": "1"}
    command = [*before, sys.executable, HERE / "sanitized.py", bundle]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


@pytest.mark.parametrize("model", MODELS)
def test_right_with_separate_buffers(model, bundle_of):
    done = verified(bundle_of(model))
    assert done.returncode == 0, done.stderr + done.stdout


@pytest.mark.parametrize("tool", ["memcheck", "synccheck"])
@pytest.mark.parametrize("model", MODELS)
def test_clean(model, tool, bundle_of):
    checker = shutil.which("compute-sanitizer")
    if checker is None:
        pytest.skip("compute-sanitizer is not on the PATH")
    words = [checker, "--tool", tool, "--error-exitcode", str(FOUND_ERRORS)]
    words += ["--leak-check", "full"] if tool == "memcheck" else []
    done = verified(bundle_of(model), *words)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "ERROR SUMMARY: 0 errors" in done.stdout


def test_the_checker_finds_a_planted_overrun():
    """Otherwise a clean report would mean nothing."""
    checker = shutil.which("compute-sanitizer")
    if checker is None:
        pytest.skip("compute-sanitizer is not on the PATH")
    code = (
        f"import sys; sys.path.insert(0, {str(HERE)!r})\n"
        "from programs import capability\n"
        "from triton_kernels import compiled\n"
        "from aotc.runtime.drivers.cuda.device import Device\n"
        "from aotc.runtime.drivers.cuda.handles import Arguments\n"
        "device = Device()\n"
        "kernel = compiled('add', capability(device))\n"
        "function = device.function(device.load(kernel.code), kernel.symbol)\n"
        "a, b, short = device.allocate(4096), device.allocate(4096), device.allocate(4092)\n"
        "device.launch(function, (1, 1, 1), kernel.threads, Arguments([a, b, short, 1024, 0, 0]))\n"
        "device.synchronize()\n"
    )
    command = [checker, "--tool", "memcheck", "--error-exitcode", str(FOUND_ERRORS)]
    command += [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "Invalid __global__ write" in done.stdout
