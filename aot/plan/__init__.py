"""Lifetimes, arena and launches: Schedule → LaunchPlan."""

from aotc.aot.plan.form import ChosenKernel, plan

__all__ = ["ChosenKernel", "plan"]
