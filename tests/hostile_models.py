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
