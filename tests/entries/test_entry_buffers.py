"""Buffers that hold the same when they are captured, each a state of its own."""

import pytest

torch = pytest.importorskip("torch")

from aotc.aot.capture.capture import capture  # noqa: E402
from aotc.aot.capture.spec import entry_specs  # noqa: E402
from aotc.aot.entries import agreed  # noqa: E402
from aotc.aot.entry_points import EntryPoint  # noqa: E402
from aotc.aot.ir.reference import interpret  # noqa: E402

pytestmark = pytest.mark.torch


class Stores(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for number in range(3):
            # The last one is in no state dict.
            self.register_buffer(f"store_{number}", torch.zeros(2, 3), persistent=number < 2)
        self.register_buffer("count", torch.zeros(2, dtype=torch.int64), persistent=False)
        self.register_buffer("other", torch.zeros(2, dtype=torch.int64), persistent=False)

    def write(self, x):
        for number in range(3):
            getattr(self, f"store_{number}").copy_(x * (number + 1))
        self.count.add_(1)
        self.other.add_(2)
        return x.sum()

    def read(self, x):
        kept = self.store_0 - self.store_1 * 2 + self.store_2 * 5
        return kept + x + self.count[0] - self.other[1]


def test_equal_buffers_stay_apart():
    x = torch.arange(6.0).reshape(2, 3)
    entries = {name: EntryPoint((x,)) for name in ("write", "read")}
    captured = agreed([capture(spec) for spec in entry_specs(Stores(), entries, "spec.py")])
    graphs = {each.entry: each.graph for each in captured}
    kept = {state.name: node for state, node in zip(
        graphs["write"].states, graphs["write"].inputs[1:], strict=True)}  # fmt: skip
    zeros = {name: torch.zeros(node.shape).numpy() for name, node in kept.items()}
    zeros = {name: array.astype(kept[name].dtype.replace("i", "int").replace("f", "float"))
             for name, array in zeros.items()}  # fmt: skip
    found = interpret(graphs["write"], [x.numpy(), *zeros.values()])
    held = dict(zip(kept, found[1:], strict=False))
    assert {state.name for state in graphs["read"].states} == set(kept)
    given = [held[state.name] for state in graphs["read"].states]
    found = interpret(graphs["read"], [x.numpy(), *given])[0]
    model = Stores()
    model.write(x)
    torch.testing.assert_close(torch.from_numpy(found), model.read(x))
