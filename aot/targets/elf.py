"""A reader for the little of ELF that the linker's check needs: 64-bit dynamic symbols."""

from __future__ import annotations

import struct

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_DYNAMIC_SYMBOLS = 11  # SHT_DYNSYM
_UNDEFINED_SECTION = 0  # SHN_UNDEF


def undefined_symbols(data: bytes) -> frozenset[str]:
    """Names that a shared library expects from the process that loads it."""
    return frozenset(
        name for name, section in _dynamic_symbols(data) if section == _UNDEFINED_SECTION
    )


def exported_symbols(data: bytes) -> frozenset[str]:
    """Names that a shared library defines for others."""
    return frozenset(
        name for name, section in _dynamic_symbols(data) if section != _UNDEFINED_SECTION
    )


def _dynamic_symbols(data: bytes) -> list[tuple[str, int]]:
    """(name, section index) of each named dynamic symbol; ValueError on bytes that are not ELF."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    header = _HEADER.unpack_from(data)
    sections_offset, section_count = header[6], header[12]
    sections = [
        _SECTION.unpack_from(data, sections_offset + index * _SECTION.size)
        for index in range(section_count)
    ]
    found: list[tuple[str, int]] = []
    for section in sections:
        if section[1] != _DYNAMIC_SYMBOLS:
            continue
        offset, size, strings = section[4], section[5], sections[section[6]]
        for position in range(offset, offset + size, _SYMBOL.size):
            name_offset, _, _, index, _, _ = _SYMBOL.unpack_from(data, position)
            start = strings[4] + name_offset
            name = data[start : data.index(b"\0", start)].decode()
            if name:
                found.append((name, index))
    return found
