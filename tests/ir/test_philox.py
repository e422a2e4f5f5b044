"""The op `philox` against the vectors that its authors published with it."""

from __future__ import annotations

import numpy
import pytest

from aotc.aot.ir.reference import philox

# Counter, key and result of Philox 4x32-10: Random123's known answers.
VECTORS = (
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (
        (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF),
        (0xFFFFFFFF, 0xFFFFFFFF),
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
)


def signed(high, low):
    return numpy.array([(high << 32) | low], numpy.uint64).view(numpy.int64)


@pytest.mark.parametrize(("counter", "key", "expected"), VECTORS)
def test_words_are_the_published_ones(counter, key, expected):
    element, offset = signed(0, counter[0]), signed(counter[1], counter[2])
    seed = signed(key[1], key[0])
    found = [philox(seed, offset, element, counter[3], word) for word in range(4)]
    assert [int(word.view(numpy.uint32)[0]) for word in found] == list(expected)
