"""Lifetimes, arena and launches: Schedule → LaunchPlan."""

from aotc.aot.plan.dynamic import Variant, plan_dynamic
from aotc.aot.plan.form import ChosenKernel, plan, plan_wired
from aotc.aot.plan.sizes import SizeTable
from aotc.aot.plan.wiring import Wiring, wire

__all__ = [
    "ChosenKernel",
    "SizeTable",
    "Variant",
    "Wiring",
    "plan",
    "plan_dynamic",
    "plan_wired",
    "wire",
]
