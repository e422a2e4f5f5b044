"""Lifetimes, arena and launches: Schedule → LaunchPlan."""

from aotc.aot.plan.form import ChosenKernel, plan, plan_wired
from aotc.aot.plan.wiring import Wiring, wire

__all__ = ["ChosenKernel", "Wiring", "plan", "plan_wired", "wire"]
