"""Row kernels: reductions over rows, softmax and norms among them."""
