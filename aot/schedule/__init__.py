"""Which nodes share a kernel: Graph → Schedule."""

from aotc.aot.schedule.group import Domain, Group, Root, Schedule
from aotc.aot.schedule.schedule import schedule

__all__ = ["Domain", "Group", "Root", "Schedule", "schedule"]
