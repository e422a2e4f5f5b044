"""The CPU target: Triton IR to LLVM IR text to objects for x86-64."""
