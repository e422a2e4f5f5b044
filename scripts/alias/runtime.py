"""Alias module: `import runtime` anywhere is `aotc.runtime`, the same module object."""

import aotc.runtime

aotc.runtime.alias.answer_to(__name__)
