"""Sources of a bundle: each kernel's source and spec, and the launches' buffer assignment.

What `aotc tune` needs to choose and plan anew where the model is not. Data that is read strictly;
`schema.py` has the grammar. The Triton sources are run by `aotc tune` alone, never by the runtime.
"""

from aotc.aot.sources.files import print_sources, read_sources
from aotc.aot.sources.schema import Lowered, Sources

__all__ = ["Lowered", "Sources", "print_sources", "read_sources"]
