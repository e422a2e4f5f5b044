"""Which nodes share a kernel: Graph → Schedule."""

from aotc.aot.schedule.form import schedule
from aotc.aot.schedule.group import Domain, Group, Root, Schedule

__all__ = ["Domain", "Group", "Root", "Schedule", "schedule"]
