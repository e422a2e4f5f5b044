"""Content-addressed store of build products: kernels' machine code and tuning records.

Layout and guarantees are documented in `store.py`. Imports nothing else of aotc.
"""

from aotc.cache.keys import Key
from aotc.cache.layers import FolderLayer, Layer
from aotc.cache.store import Counters, Entry, Store

__all__ = ["Counters", "Entry", "FolderLayer", "Key", "Layer", "Store"]
