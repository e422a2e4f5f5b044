"""Products of 8-bit integers: exact on every processor, at any size, with weights and without."""

from __future__ import annotations

import numpy
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
pytestmark = [pytest.mark.torch, pytest.mark.triton]

from aotc.aot.capture.capture import capture  # noqa: E402
from aotc.aot.capture.spec import load_spec  # noqa: E402
from aotc.aot.ir.reference import interpret  # noqa: E402
from aotc.aot.pipeline import BuildOptions, build  # noqa: E402
from aotc.aot.rewrites.rewrite import rewrite  # noqa: E402
from aotc.aot.traits import TargetTraits  # noqa: E402
from aotc.runtime import load  # noqa: E402
from aotc.runtime.drivers.cpu.driver import ISA_FEATURES, features  # noqa: E402

# (rows, depth, columns): words and tiles divide them, and not; depths past what f32 adds up
# exactly. torch's own `_int_mm` is wrong at depth 1, of which a build warns.
SIZES = (
    (17, 64, 128),
    (33, 2048, 64),
    (64, 1111, 70),
    (5, 96, 65),
    (4, 3, 9),
    (18, 1, 8),
    (1, 320, 40),
    (3, 33, 1),
    (20, 0, 8),
    (2, 4096, 5),
)
# The products of bytes of x86-64-v4-bf16 are those of x86-64-v4-vnni: see `test_tile_dot.py`.
NAMES = [
    pytest.param(name, marks=pytest.mark.nightly if name == "x86-64-v4-bf16" else ())
    for name in ISA_FEATURES
]
MODEL = """
import torch

SIZES = {sizes}


def numbers(shape, seed):
    # Some rows and columns have the least number alone: no sum of theirs is small.
    drawn = torch.Generator().manual_seed(seed)
    made = torch.randint(-128, 128, shape, dtype=torch.int8, generator=drawn)
    made[:1] = -128
    made[:, :1] = -128
    return made


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for place, (_, depth, columns) in enumerate(SIZES):
            self.register_buffer(f"columns{{place}}", numbers((depth, columns), place))
            self.register_buffer(f"rows{{place}}", numbers((columns, depth), place))

    def forward(self, *given):
        found = []
        for place, (x, w) in enumerate(zip(given[::2], given[1::2], strict=True)):
            found.append(torch._int_mm(x, w))
            found.append(torch._int_mm(x, getattr(self, f"columns{{place}}")))
            found.append(torch._int_mm(x, getattr(self, f"rows{{place}}").t()) + 1)
            found.append(x.to(torch.int32) @ w.to(torch.int32))
            found.append(x.long() @ getattr(self, f"rows{{place}}").t().long())
        return tuple(found)


def build_model():
    return Model()


example_inputs = tuple(
    each
    for place, (rows, depth, columns) in enumerate(SIZES)
    for each in (numbers((rows, depth), 100 + place), numbers((depth, columns), 200 + place))
)
"""


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    path = tmp_path_factory.mktemp("bytes") / "model.py"
    path.write_text(MODEL.format(sizes=SIZES))
    return path


@pytest.fixture(scope="module")
def expected(spec):
    """Exact results of the example, by sums of i64."""
    found = load_spec(str(spec))
    pairs = list(zip(found.arguments[::2], found.arguments[1::2], strict=True))
    rows = []
    for place, (x, w) in enumerate(pairs):
        x, own = x.long(), getattr(found.module, f"rows{place}").t().long()
        columns = getattr(found.module, f"columns{place}").long()
        rows += [x @ w.long(), x @ columns, x @ own + 1, x @ w.long(), x @ own]
    return [each.numpy() for each in rows]


@pytest.mark.parametrize("name", NAMES)
def test_every_processor_gives_exact_sums(name, spec, expected, cache, tmp_path):
    if not ISA_FEATURES[name] <= features():
        pytest.skip(f"this processor is not {name}")
    options = BuildOptions(cache_folder=cache)
    build(str(spec), tmp_path / "out", (f"cpu-{name}",), options)
    given = [each.numpy() for each in load_spec(str(spec)).arguments]
    with load(tmp_path / "out", threads=1) as program:
        for result, exact in zip(program(*given), expected, strict=True):
            numpy.testing.assert_array_equal(numpy.asarray(result), exact)


def ops_of(graph):
    return {node.op for node in graph.nodes()}


def test_gpus_multiply_parts_that_f32_adds_up(spec, expected):
    found = load_spec(str(spec))
    graph = capture(found).graph
    assert "matmul_i8" in ops_of(graph)
    on_cpu, on_gpu = (
        rewrite(graph, TargetTraits(is_gpu=is_gpu, packs_weights=not is_gpu))[0]
        for is_gpu in (False, True)
    )
    assert {"matmul_i8", "matmul_packed"} <= ops_of(on_cpu)
    assert "matmul_i8" not in ops_of(on_gpu)
    given = [each.numpy() for each in found.arguments]
    for each in (graph, on_cpu, on_gpu):
        for result, exact in zip(interpret(each, given), expected, strict=True):
            numpy.testing.assert_array_equal(result, exact)
