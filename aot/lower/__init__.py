"""Groups to Triton source: Schedule → KernelSpec."""

from aotc.aot.lower.form import lower
from aotc.aot.lower.spec import Candidate, KernelSpec, Param

__all__ = ["Candidate", "KernelSpec", "Param", "lower"]
