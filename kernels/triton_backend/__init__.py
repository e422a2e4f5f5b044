"""What Triton imports of this package, as its entry point `triton.backends` names it.

It is imported at every `import triton`, so it holds two small classes that stand for
`aotc.kernels.driver` and import that only when they are asked for.
"""

NAME = "aotc-x86"
"""Of the target, the backend and the entry point; never "cpu", which torch takes as its own."""
