"""Two small models as texts, of fixed and of dynamic sizes, whose bundles are altered."""

FIXED = """
    import torch

    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(32, 2, 64, 0.0, batch_first=True)
    model = torch.nn.Sequential(layer, torch.nn.Linear(32, 7), torch.nn.Softmax(-1)).eval()
    example_inputs = (torch.randn(2, 5, 32),)
"""
VARYING = """
    import torch
    from torch.export import Dim

    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(24, 40), torch.nn.GELU(), torch.nn.LayerNorm(40), torch.nn.Linear(40, 7)
    ).eval()
    example_inputs = (torch.randn(8, 24),)
    dynamic_shapes = ({0: Dim("rows", max=100)},)
"""
BLOCKS = """
    import torch
    from torch._higher_order_ops.map import map as mapped
    from torch._higher_order_ops.scan import scan

    class Blocks(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(12, 12)
            self.table = torch.nn.Parameter(torch.randn(9, 12))

        def forward(self, x, places, flag):
            step = lambda state, row: (torch.tanh(self.linear(state) + row), state * row.sum())
            last, rows = scan(step, torch.zeros(12), x)
            chosen = torch.cond(flag, lambda x: x.cumsum(0), lambda x: self.linear(x), (rows,))
            return last, chosen, mapped(lambda place, table: table[place], places, self.table)

    torch.manual_seed(0)
    model = Blocks().eval()
    example_inputs = (torch.randn(7, 12), torch.randint(0, 9, (5, 3)), torch.tensor(True))
"""
