"""What becomes of errors inside a stage."""

from __future__ import annotations

import errno

import pytest

from aotc.aot.errors import InternalError, SizeUnsupported, UndecidedSize
from aotc.aot.stages import STAGES, Clock
from aotc.runtime.errors import AotcError


@pytest.mark.parametrize("name", STAGES)
def test_a_size_that_a_stage_asks_for_is_not_supported(name):
    """So that torch.compile compiles for each size, and a build says which dims to narrow."""
    refused = pytest.raises(SizeUnsupported, match=f"`{name}` needs a dynamic size")
    with refused, Clock().stage(name):
        raise UndecidedSize("`n < 3` is only known at the call")


def test_other_errors_are_bugs_and_the_machines_faults_are_not():
    with pytest.raises(InternalError, match="stage `rewrite`: KeyError"), Clock().stage("rewrite"):
        raise KeyError("no such node")
    with pytest.raises(AotcError) as full, Clock().stage("pack"):
        raise OSError(errno.ENOSPC, "no space left", "bundle")
    assert not isinstance(full.value, InternalError)
