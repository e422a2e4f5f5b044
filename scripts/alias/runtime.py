"""Alias module: `import runtime` anywhere is `aotc.runtime`, the same module object."""

import sys

import aotc.runtime

sys.modules[__name__] = aotc.runtime
