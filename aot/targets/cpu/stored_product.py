"""A product and the stores that take its elements from registers; `fused_store.py` finds them."""

from __future__ import annotations

from typing import NamedTuple

from aotc.aot.targets.cpu.ttir import Operation, Value


class StoredProduct(NamedTuple):
    """A product that ends in stores, which nobody else reads."""

    operation: Operation
    """The dot, or the loop around it."""
    dot: Operation
    value: Value
    """What the stores read."""
    stores: tuple[Operation, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.type.shape or ()

    @property
    def mask(self) -> Value | None:
        """Where elements are stored, the same for all stores."""
        operands = self.stores[0].operands
        return operands[2] if len(operands) > 2 else None
