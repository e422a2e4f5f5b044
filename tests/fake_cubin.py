"""Images for the fake driver: real cubins are read, and small ones in text are made.

A text image says its architecture and its kernels with the bytes of each parameter:

    FAKE sm_90
    copy 8 8 4 8 8
"""

import struct
from dataclasses import dataclass

PARAMETER = 0x17  # EIATTR_KPARAM_INFO
THREADS = 0x10  # EIATTR_REQNTID


@dataclass(frozen=True)
class Entry:
    """A kernel: bytes of its parameters, and the threads it was compiled for (0: any)."""

    symbol: str
    sizes: tuple[int, ...]
    threads: int = 0


@dataclass(frozen=True)
class ImageOf:
    """An image's architecture, for example 90, and its kernels."""

    capability: int
    entries: dict[str, Entry]


def text_image(kernels, capability=90):
    """The bytes of a text image; `kernels` maps symbols to the number of 8-byte parameters.

    Triton's own two parameters, which the driver adds, are to be counted too.
    """
    lines = [f"FAKE sm_{capability}"]
    lines += [f"{symbol} {' '.join(['8'] * count)}" for symbol, count in kernels.items()]
    return ("\n".join(lines) + "\n").encode() + b"\0"


def read_image(address):
    """The image at a host address; None for what no driver would read."""
    from ctypes import string_at

    if string_at(address, 4) == b"FAKE":
        return _read_text(string_at(address).decode())
    if string_at(address, 4) == b"\x7fELF":
        return _read_elf(address)
    return None


def _read_text(text):
    head, *rows = text.splitlines()
    entries = {}
    for row in rows:
        symbol, *sizes = row.split()
        entries[symbol] = Entry(symbol, tuple(map(int, sizes)))
    return ImageOf(int(head.removeprefix("FAKE sm_")), entries)


def _read_elf(address):
    from ctypes import string_at

    head = string_at(address, 64)
    flags = struct.unpack_from("<I", head, 48)[0]
    sections, (size, count, names) = (
        struct.unpack_from("<Q", head, 40)[0],
        struct.unpack_from("<HHH", head, 58),
    )
    capability = flags >> 8 & 0xFF if head[7] == 0x41 else flags & 0xFF
    rows = [
        struct.unpack("<IIQQQQIIQQ", string_at(address + sections + at * size, 64))
        for at in range(count)
    ]
    entries = {}
    for row in rows:
        name = string_at(address + rows[names][4] + row[0]).decode()
        if name.startswith(".nv.info."):
            symbol = name.removeprefix(".nv.info.")
            entries[symbol] = _entry(symbol, string_at(address + row[4], row[5]))
    return ImageOf(capability, entries)


def _entry(symbol, data):
    sizes, threads, at = {}, 0, 0
    while at < len(data):
        kind, attribute, value = struct.unpack_from("<BBH", data, at)
        at += 4
        if kind == 4:
            payload, at = data[at : at + value], at + value
            if attribute == PARAMETER:
                ordinal, _, word = struct.unpack_from("<HHI", payload, 4)
                sizes[ordinal] = word >> 18
            elif attribute == THREADS:
                threads = struct.unpack_from("<I", payload)[0]
    return Entry(symbol, tuple(size for _, size in sorted(sizes.items())), threads)
