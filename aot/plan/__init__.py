"""Lifetimes, arena and steps: Schedule → Plan."""

from aotc.aot.ir.size_table import SizeTable
from aotc.aot.plan.buffer_assignment import BufferAssignment, assign_buffers
from aotc.aot.plan.plan import ChosenKernel, Variant, plan, plan_assigned, plan_variants

__all__ = [
    "BufferAssignment",
    "ChosenKernel",
    "SizeTable",
    "Variant",
    "assign_buffers",
    "plan",
    "plan_assigned",
    "plan_variants",
]
