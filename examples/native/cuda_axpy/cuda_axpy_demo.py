"""Computes 2 x + y on a device by the library beside this file; needs torch and a GPU."""

import torch

from aotc import runtime

library = runtime.get_backend("cuda_axpy")
x, y = torch.randn(2, 1 << 20, device="cuda").unbind()
out = torch.empty_like(x)

library.axpy(x, y, 2.0, out=out)  # on torch's current stream; nothing waits for it
torch.testing.assert_close(out, 2.0 * x + y)
print(f"{library}: {out.numel()} elements")
