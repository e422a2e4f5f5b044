"""How calls of Triton kernels are captured: the text of a kernel, its memory, what is refused."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402
from torch.library import custom_op, triton_op, wrap_triton  # noqa: E402

from aotc import kernels  # noqa: E402
from aotc.aot import errors  # noqa: E402
from aotc.aot.capture.capture import capture  # noqa: E402
from aotc.aot.capture.imports.call import NotSupported  # noqa: E402
from aotc.aot.capture.spec import load_spec, spec_of  # noqa: E402
from aotc.aot.capture.triton_source import kernel_text, python_text  # noqa: E402
from aotc.aot.ir.graph import walk  # noqa: E402
from aotc.aot.ir.reference import evaluate  # noqa: E402
from aotc.aot.ir.text import parse_graph, print_graph  # noqa: E402
from aotc.aot.plan import assign_buffers  # noqa: E402
from aotc.aot.rewrites.rewrite import rewrite_each  # noqa: E402
from aotc.aot.schedule import schedule  # noqa: E402
from aotc.aot.targets.cpu.target import CPU  # noqa: E402
from aotc.aot.targets.cuda.machines import GPUS  # noqa: E402
from aotc.aot.targets.toolchain import load_kernel  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.triton]
X = torch.ones(4, 6)
HALF = tl.constexpr(0.5)
TABLE = {"a": 1}


@triton.jit
def halve(value):
    return value * HALF


@triton.jit
def copy_halves(x_ptr, out_ptr, count, BLOCK: tl.constexpr, DTYPE: tl.constexpr = tl.float32):
    at = tl.arange(0, BLOCK)
    value = tl.load(x_ptr + at, mask=at < count).to(DTYPE)
    tl.store(out_ptr + at, halve(value) * (at % 2 + 1), mask=at < count)


@triton.jit
def with_table(x_ptr):
    tl.store(x_ptr, TABLE["a"])


@triton.jit
def with_module(x_ptr):
    tl.store(x_ptr, torch.pi)


@triton.jit
def with_pi(x_ptr):
    tl.store(x_ptr, math.pi)


@triton_op("aotc_capture::halved", mutates_args={})
def halved(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.shape)
    wrap_triton(copy_halves)[(1,)](x, out, x.numel(), BLOCK=32)
    return out


@triton_op("aotc_capture::into_half", mutates_args={})
def into_half(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(4, 12)
    wrap_triton(copy_halves)[(1,)](x, out[:, :6], x.numel(), BLOCK=32)
    return out


@triton_op("aotc_capture::with_table", mutates_args={"x"})
def tabled(x: torch.Tensor) -> None:
    wrap_triton(with_table)[(1,)](x)


@triton.jit
def raise_one(x_ptr):
    at = x_ptr + tl.arange(0, 8)
    tl.store(at, tl.load(at) + 1)


@triton_op("aotc_capture::raised", mutates_args={"x"})
def raised(x: torch.Tensor) -> None:
    wrap_triton(raise_one)[(1,)](x)


@custom_op("aotc_capture::opaque", mutates_args=())
def opaque(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


@opaque.register_fake
def _(x):
    return torch.empty_like(x)


@custom_op("aotc_capture::changing", mutates_args={"x"})
def changing(x: torch.Tensor) -> None:
    x.add_(1)


def graph_of(model, *inputs):
    with kernels.on_cpu():
        return capture(spec_of(model, inputs, "test_capture.py")).graph


def calls(graph):
    return [node for node in walk(graph.outputs) if node.op == "call"]


def test_the_text_of_a_kernel_stands_by_itself():
    text = kernel_text(copy_halves)
    assert text.index("HALF = tl.constexpr(0.5)") < text.index("def halve(")
    assert text.index("def halve(") < text.index("def copy_halves(")
    assert load_kernel(text, "copy_halves").arg_names == copy_halves.arg_names


def test_numbers_of_the_math_module_are_kept():
    assert "import math as math" in kernel_text(with_pi)


@pytest.mark.parametrize(
    ("kernel", "named"), [(with_table, "`TABLE`, a `dict`"), (with_module, "module `torch`")]
)
def test_what_no_file_can_hold_is_refused_by_name(kernel, named):
    with pytest.raises(NotSupported, match=named):
        kernel_text(kernel)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        (True, "True"),
        (-0.25, "-0.25"),
        (float("-inf"), 'float("-inf")'),
        (None, "None"),
        ("ieee", "'ieee'"),
        (tl.bfloat16, "tl.bfloat16"),
        (tl.constexpr(7), "7"),
        ((1, 2.5), "(1, 2.5, )"),
    ],
)
def test_compile_time_values_are_written_as_python(value, text):
    assert python_text(value) == text


def test_a_call_is_printed_and_parsed():
    graph = graph_of(lambda x: halved(x) + 1, X)
    assert "% 2" in calls(graph)[0].attr("source")
    parsed = parse_graph(print_graph(graph, with_sources=True), graph.constants)
    assert parsed.outputs == graph.outputs


def test_operands_are_memory():
    whole, columns, rows = calls(
        graph_of(lambda x: (halved(x), halved(x[:, 2:]), halved(x.t())), X)
    )
    assert whole.inputs[0].op == columns.inputs[0].op == "input"
    assert rows.inputs[0].shape == (4, 6)  # the order in which they lie
    assert columns.attr("arguments")[0] == ("x_ptr", "read", (0, 2))
    assert rows.shape == (6, 4)


def test_equal_calls_are_one_and_updated_memory_is_not_shared():
    graph = graph_of(lambda x: halved(x) + halved(x), X)
    assert len(calls(graph)) == 1


def test_a_call_of_constants_stays_a_call():
    class Weighted(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(4, 6))

        def forward(self, x):
            return halved(self.weight) + x

    families = {"cpu": CPU, "cuda": GPUS[90]}
    for rewritten, _ in rewrite_each(graph_of(Weighted(), X), families).values():
        (call,) = calls(rewritten)
        with pytest.raises(ValueError, match="copy_halves"):
            evaluate(call, [X.numpy()])


def test_memory_that_a_call_updates_is_its_results():
    def changed(x):
        y = x + 1
        raised(y)
        return y * 2

    scheduled = schedule(graph_of(changed, X), CPU)
    first, call, last = assign_buffers(scheduled).launches
    (before,), (after,) = first.operands[1:], call.operands[call.stored :]
    assert before == after == last.operands[0]
    assert scheduled.groups[1].kind == "call"


def test_numbers_keep_the_types_of_a_launch():
    (call,) = calls(graph_of(lambda x: halved(x), X))
    texts = {name: what for name, kind, what in call.attr("arguments") if kind == "value"}
    assert texts == {"count": "tl.full((), 24, tl.int32)", "BLOCK": "32"}


def test_a_kernel_that_torch_cannot_follow_changes_what_its_op_declares(monkeypatch):
    from torch._higher_order_ops import triton_kernel_wrap

    def fail(*arguments):
        raise ValueError("no idea")

    monkeypatch.setattr(triton_kernel_wrap, "generate_ttir", fail)
    with kernels.on_cpu():
        captured = capture(spec_of(lambda x: halved(x) + x, (X,), "test_capture.py"))
    assert [node.op for node in captured.graph.inputs] == ["input"]
    (call,) = {node.attr("source"): node for node in calls(captured.graph)}.values()
    assert len(call.attr("results")) == 2  # as if `x` were stored to, into memory of its own
    with pytest.raises(errors.MutationUnsupported, match="`x`"):
        graph_of(lambda x: (tabled(x), x + 1)[1], X)


REFUSED = {
    "stored to and has gaps": lambda x: into_half(x),
    "uses `TABLE`": lambda x: (y := x + 1, tabled(y))[0],
    "aotc_capture.opaque.default": lambda x: opaque(x),
    "decompositions = {op: function}": lambda x: opaque(x),
    "torch.library.triton_op": lambda x: opaque(x),
    "changes its arguments": lambda x: (y := x + 1, changing(y))[0],
    "aotc_capture.changing.default": lambda x: (y := x + 1, changing(y))[0],
}


@pytest.mark.parametrize("named", REFUSED)
def test_what_cannot_be_compiled_is_refused_by_name(named):
    with pytest.raises(errors.OpsUnsupported) as caught:
        graph_of(REFUSED[named], X)
    assert named in caught.value.message
    assert "test_capture.py:" in caught.value.message


SPEC = """
import torch

@torch.library.custom_op("aotc_capture::{name}", mutates_args=())
def op(x: torch.Tensor) -> torch.Tensor:
    return x.sin()

@op.register_fake
def _(x):
    return torch.empty_like(x)

def model(x):
    return op(x) + 1

example_inputs = (torch.ones(3),)
decompositions = {decompositions}
"""


def write(tmp_path, name, decompositions):
    path = tmp_path / f"{name}.py"
    path.write_text(SPEC.format(name=name, decompositions=decompositions))
    return load_spec(str(path))


@pytest.mark.parametrize(
    ("name", "key"),
    [("one", "op"), ("two", "torch.ops.aotc_capture.two"), ("three", "op._opoverload")],
)
def test_a_spec_brings_decompositions(tmp_path, name, key):
    graph = capture(write(tmp_path, name, f"{{{key}: torch.sin}}")).graph
    assert "sin" in {node.op for node in walk(graph.outputs)}


@pytest.mark.parametrize(
    ("name", "decompositions"), [("four", "{3: torch.sin}"), ("five", "[1]"), ("six", "{op: 1}")]
)
def test_other_decompositions_are_refused(tmp_path, name, decompositions):
    with pytest.raises(errors.SpecDecompositionsInvalid, match="decompositions"):
        write(tmp_path, name, decompositions)


@triton.jit
def with_assembly(x_ptr, out_ptr):
    value = tl.load(x_ptr)
    moved = tl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=r,r", [value], dtype=tl.float32, is_pure=True, pack=1
    )
    tl.store(out_ptr, moved)


@triton_op("aotc_capture::assembly", mutates_args={})
def assembly(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    wrap_triton(with_assembly)[(1,)](x, out)
    return out


def test_a_kernel_that_the_host_cannot_run_is_refused_with_what_it_lacks():
    with pytest.raises(errors.KernelNotOnHost, match="elementwise_inline_asm") as caught:
        graph_of(lambda x: assembly(x), X)
    assert "test_capture.py:" in caught.value.source
