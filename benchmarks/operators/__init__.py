"""Which ATen ops a bundle computes, driven by torch's own operator database."""
