"""One model that holds every op whose data is checked, and what each refuses.

A row is an op on an index (or divisor) of its own, an input of the model: `good` is what it takes,
`bad` what eager refuses with an exception of `error`; `operation` is what the message names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

TABLE = torch.arange(12.0).reshape(4, 3)
WHOLE = torch.tensor([7, -7, 5])
FAR = (2**33, -(2**63), 2**63 - 1)  # some are in range when cut to 32 bits


@dataclass(frozen=True)
class Site:
    """An op, and the integers that it takes and refuses; a bad one stands in the last place."""

    run: Callable[[torch.Tensor], torch.Tensor]
    good: list
    bad: tuple[int, ...]
    error: type[Exception]
    operation: str


def _put(index: torch.Tensor) -> torch.Tensor:
    return TABLE.index_put((index,), torch.tensor(9.0))


def _assigned(index: torch.Tensor) -> torch.Tensor:
    changed = TABLE.clone()
    changed[index, 1] += 5.0
    return changed


def _site(run, good, bad, error, operation):
    return Site(run, good, (*bad, *FAR), error, operation)


ABOVE, BOTH, FROM_END = (4,), (4, -1), (4, -5)  # of four rows
SITES: dict[str, Site] = {
    "embedding": _site(lambda i: F.embedding(i, TABLE), [0, 3], BOTH, IndexError, "embedding"),
    "bag": _site(
        lambda i: F.embedding_bag(i, TABLE, torch.tensor([0, 1])),
        [0, 1, 3],
        BOTH,
        RuntimeError,
        "embedding_bag_forward_only",
    ),
    "gather": _site(lambda i: TABLE.gather(0, i[:, None]), [0, 3], BOTH, RuntimeError, "gather"),
    "take": _site(lambda i: TABLE.take(i), [0, -12, 11], (12, -13), IndexError, "take"),
    "index": _site(lambda i: TABLE[:, None][i], [0, -4, 3], FROM_END, IndexError, "index"),
    "index of two": _site(
        lambda i: TABLE[i, torch.tensor([0, 1])], [-1, 3], FROM_END, IndexError, "index"
    ),
    "index_select": _site(
        lambda i: TABLE.index_select(0, i), [0, 3], BOTH, IndexError, "index_select"
    ),
    "index_put": _site(_put, [0, -4, 3], FROM_END, IndexError, "index_put"),
    "assigned": _site(_assigned, [0, -4, 3], FROM_END, IndexError, "index"),
    "index_add": _site(
        lambda i: TABLE.index_add(0, i, TABLE[:2]), [0, 3], BOTH, RuntimeError, "index_add"
    ),
    "index_copy": _site(
        lambda i: TABLE.index_copy(0, i, TABLE[:2]), [0, 3], BOTH, IndexError, "index_copy"
    ),
    "index_fill": _site(
        lambda i: TABLE.index_fill(0, i, 1.0), [0, -4, 3], FROM_END, IndexError, "index_fill"
    ),
    "scatter": _site(
        lambda i: TABLE.scatter(0, i[:, None], 1.0), [0, 3], BOTH, RuntimeError, "scatter"
    ),
    "scatter_add": _site(
        lambda i: TABLE.scatter_add(0, i[:, None], TABLE), [3, 3], BOTH, RuntimeError, "scatter_add"
    ),
    "scatter_reduce": _site(
        lambda i: TABLE.scatter_reduce(0, i[:, None], TABLE, "amax"),
        [3, 0],
        BOTH,
        RuntimeError,
        "scatter_reduce",
    ),
    "one_hot": _site(lambda i: F.one_hot(i, 3), [0, 2], (3, -1), RuntimeError, "one_hot"),
    "cross entropy": _site(
        lambda i: F.cross_entropy(TABLE, i),
        [0, -100, 1, 2],
        (3, -1),
        IndexError,
        "nll_loss_forward",
    ),
    "cross entropy of each": _site(
        lambda i: F.cross_entropy(TABLE, i, reduction="none", ignore_index=1),
        [0, 1, 1, 2],
        (3, -1),
        IndexError,
        "nll_loss_forward",
    ),
    # What of the index becomes of no result counts too.
    "unselected": _site(
        lambda i: torch.where(TABLE[:3] < 0, F.embedding(i, TABLE), 0.0),
        [0, 3, 1],
        BOTH,
        IndexError,
        "embedding",
    ),
    "cut off": _site(
        lambda i: F.embedding(i + 1, TABLE)[:1], [0, 2], (3, -2), IndexError, "embedding"
    ),
    "floor_divide": Site(lambda i: WHOLE // i, [1, -2, 3], (0,), RuntimeError, "floor_divide"),
    "remainder": Site(lambda i: WHOLE % i, [1, -2, 3], (0,), RuntimeError, "remainder"),
    "remainder of a number": Site(
        lambda i: torch.remainder(5, i.to(torch.uint8)), [1, 2], (0,), RuntimeError, "remainder"
    ),
    "fmod": Site(lambda i: torch.fmod(WHOLE, i), [1, -2, 3], (0,), RuntimeError, "fmod"),
    "trunc": Site(
        lambda i: torch.div(WHOLE, i, rounding_mode="trunc"), [1, -2, 3], (0,), RuntimeError, "div"
    ),
}


class Everything(torch.nn.Module):
    """All sites, each on an input of its own."""

    def forward(self, *indices):
        return tuple(site.run(index) for site, index in zip(SITES.values(), indices, strict=True))


model = Everything()
example_inputs = tuple(torch.tensor(site.good) for site in SITES.values())
