"""What becomes of errors inside a stage."""

from __future__ import annotations

import errno
import os

import pytest

from aotc.aot.errors import InternalError, SizeUnsupported, UndecidedSize
from aotc.aot.folders import MACHINE_FAULTS, machine_fault
from aotc.aot.stages import STAGES, Clock
from aotc.aot.targets import toolchain
from aotc.aot.tasks.worker import _describe
from aotc.runtime.errors import EnvironmentFault, PermissionMissing


@pytest.mark.parametrize("name", STAGES)
def test_a_size_that_a_stage_asks_for_is_not_supported(name):
    """So that torch.compile compiles for each size, and a build says which dims to narrow."""
    refused = pytest.raises(SizeUnsupported, match=f"`{name}` needs a dynamic size")
    with refused, Clock().stage(name):
        raise UndecidedSize("`n < 3` is only known at the call")


def test_other_errors_are_bugs_and_the_machines_faults_are_not():
    with pytest.raises(InternalError, match="stage `rewrite`: KeyError"), Clock().stage("rewrite"):
        raise KeyError("no such node")
    faults = [OSError(number, os.strerror(number), "bundle") for number in MACHINE_FAULTS]
    for fault in (*faults, OSError(errno.EMFILE, "Too many open files"), MemoryError()):
        with pytest.raises(EnvironmentFault), Clock().stage("pack"):
            raise fault
        # In a worker, which said that a kernel did not compile; what it may not do is its own.
        kind, _ = _describe(fault)
        is_denied = isinstance(machine_fault(fault), PermissionMissing)
        assert kind == ("exception" if is_denied else "error")


def test_a_linker_that_cannot_write_is_no_bug_of_a_kernel(monkeypatch):
    amd = pytest.importorskip("triton._C.libtriton").amd

    def fail(script, library):
        raise RuntimeError(f"failed to open {library}: No space left on device")

    monkeypatch.setattr(amd, "link_hsaco", fail)
    with pytest.raises(EnvironmentFault, match="no space left on device"):
        toolchain.link({})
