"""Groups to Triton source: Schedule → KernelSpec."""

from aotc.aot.lower.lower import lower
from aotc.aot.lower.spec import Candidate, Form, KernelSpec, Param, Scratch

__all__ = ["Candidate", "Form", "KernelSpec", "Param", "Scratch", "lower"]
