"""Arguments of another type, and uses after the end: errors of their own, never Python's."""

from __future__ import annotations

import copy
import pickle
import sys
from pathlib import Path

import pytest
import small_bundle

sys.path.insert(0, str(Path(__file__).parents[1] / "state"))

from aotc import runtime
from aotc.runtime import load
from aotc.runtime.bundle.opened import Bundle
from aotc.runtime.errors import (
    BundleError,
    DeviceUnknown,
    InputUnreadable,
    ProgramClosed,
    SessionBusy,
    SettingInvalid,
    WeightsUnreadable,
)
from aotc.runtime.programs.adapters import read_adapter

NO_PATHS = [None, 3, [], "a\0b"]


@pytest.fixture
def bundle(tmp_path):
    small_bundle.write(tmp_path / "bundle")
    return tmp_path / "bundle"


@pytest.mark.parametrize("path", NO_PATHS, ids=repr)
def test_what_is_no_path_is_refused(path, bundle):
    for ask in (
        lambda: load(path),
        lambda: runtime.Deployment(path),
        lambda: read_adapter(path, 1.0),
        lambda: load(bundle, revoked=path if path is not None else 3),
    ):
        with pytest.raises(SettingInvalid, match="expected a path"):
            ask()
    (mismatch,) = runtime.check(path)
    assert mismatch.expected == "a path"


def test_a_path_in_bytes_is_a_path(bundle):
    with load(bytes(bundle)) as program, Bundle(bytes(bundle)) as opened:
        assert opened.path == str(bundle)
        assert program.digest == opened.digest


@pytest.mark.parametrize("device", [3, b"null"], ids=repr)
def test_a_device_that_is_no_text_is_refused(device, bundle):
    with pytest.raises(DeviceUnknown):
        load(bundle, device)


@pytest.mark.parametrize("options", [
    {"digest": 5}, {"digest": b"ab"}, {"trusted_keys": 3}, {"trusted_keys": {}}, {"stats": []},
], ids=repr)  # fmt: skip
def test_options_of_another_type_are_refused(options, bundle):
    with pytest.raises(SettingInvalid, match=next(iter(options))):
        load(bundle, **options)


@pytest.mark.parametrize("scale", ["2", None, float("nan"), float("inf"), True], ids=repr)
def test_a_scale_of_an_adapter_is_finite(scale, tmp_path):
    with pytest.raises(SettingInvalid, match="`scale`"):
        read_adapter(tmp_path, scale)


def test_a_folder_of_weights_that_cannot_be_listed(bundle, monkeypatch, tmp_path):
    def refuse(path):
        raise PermissionError(13, "Permission denied")

    from aotc.runtime.programs import tensor_files

    monkeypatch.setattr(tensor_files.os, "listdir", refuse)
    with pytest.raises(WeightsUnreadable, match="permission denied"):
        tensor_files.given(tmp_path, {})


@pytest.mark.parametrize("wait", ["1", float("nan"), [], True], ids=repr)
def test_a_wait_that_is_no_time_changes_nothing(wait, bundle):
    with load(bundle) as program:
        with pytest.raises(SettingInvalid, match="`timeout_s`"):
            program.drain(wait)
        program(bytes(24))
    with pytest.raises(SettingInvalid, match="`drain_s`"):
        runtime.Deployment(bundle, drain_s=wait)


def test_a_wait_may_have_passed_or_be_as_long_as_may_be(bundle):
    program = load(bundle)
    with program.session():
        assert not program.drain(-3.0)
    program = load(bundle)
    assert program.drain(1e300)


@pytest.mark.parametrize("seed", ["x", None, float("nan"), float("inf")], ids=repr)
def test_a_seed_is_a_number(seed):
    with pytest.raises(SettingInvalid, match="`seed`"):
        runtime.manual_seed(seed)


def write_stateless(path):
    small_bundle.write(path)
    return 2, 3


def write_with_states(path):
    import small_state_bundle

    small_state_bundle.write(path)
    return 1, 2


@pytest.mark.parametrize("write", [write_stateless, write_with_states])
def test_addresses_are_not_run_after_the_end_nor_in_a_call(write, tmp_path):
    """What the driver would run on is freed then."""
    _, count = write(tmp_path / "bundle")
    program = load(tmp_path / "bundle")
    session = program.session()
    with session._turn, pytest.raises(SessionBusy):
        session.run_at([0] * count)
    session.close()
    with pytest.raises(ProgramClosed):
        session.run_at([0] * count)
    kept = program.session()
    program.close()
    for run_at in (kept.run_at, program.run_at):
        with pytest.raises(ProgramClosed):
            run_at([0] * count)


@pytest.mark.parametrize("take", [copy.copy, copy.deepcopy, pickle.dumps])
def test_what_is_of_one_process_is_neither_copied_nor_pickled(take, bundle):
    with runtime.Deployment(bundle) as deployment:
        program = deployment.program
        for value in (deployment, program, program.session(), program.bind(bytes(24))):
            with pytest.raises(TypeError, match="load the bundle there"):
                take(value)
        assert take(program.inputs)


def test_a_bundle_that_is_not_there_is_still_said_so(tmp_path):
    with pytest.raises(BundleError, match="no bundle at"):
        load(tmp_path / "none")


def test_a_tensor_without_memory_to_read_is_refused(bundle):
    torch = pytest.importorskip("torch")
    with load(bundle) as program:
        shape = program.inputs[0].shape
        kind = getattr(torch, {"f32": "float32", "i64": "int64"}[program.inputs[0].dtype])
        rows = torch.ones(2, *shape, dtype=kind)
        others = [torch.ones(spec.shape, dtype=kind) for spec in program.inputs[1:]]
        for call in (
            lambda: torch.func.vmap(lambda row: program(row, *others))(rows),
            lambda: program(torch.nested.nested_tensor([rows[0]]), *others),
        ):
            with pytest.raises(InputUnreadable, match="whose memory cannot be read"):
                call()
