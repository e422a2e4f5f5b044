"""Which nodes share a kernel: Graph → Schedule."""

from aotc.aot.schedule.form import schedule
from aotc.aot.schedule.group import Domain, Group, Root, Schedule
from aotc.aot.schedule.traits import CPU, TargetTraits

__all__ = ["CPU", "Domain", "Group", "Root", "Schedule", "TargetTraits", "schedule"]
