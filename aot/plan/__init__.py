"""Lifetimes, arena and steps: Schedule → Plan."""

from aotc.aot.ir.size_table import SizeTable
from aotc.aot.plan.plan import ChosenKernel, Variant, plan, plan_variants, plan_wired
from aotc.aot.plan.wiring import Wiring, wire

__all__ = [
    "ChosenKernel",
    "SizeTable",
    "Variant",
    "Wiring",
    "plan",
    "plan_variants",
    "plan_wired",
    "wire",
]
