"""Contents of a bundle that has one entry, by the fields of both."""

from aotc.aot.pack import BundleContents
from aotc.runtime.bundle.manifest import MAIN, Entry

FIELDS = ("inputs", "outputs", "structure", "dims", "sizes", "guards")


def one_entry(golden=None, **fields) -> BundleContents:
    """The entry is called `forward`; `golden` is its golden numbers."""
    own = {name: fields.pop(name) for name in FIELDS if name in fields}
    numbers = {} if golden is None else {MAIN: golden}
    return BundleContents(entries=(Entry(name=MAIN, **own),), golden=numbers, **fields)
