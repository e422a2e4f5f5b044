"""Settings: one table, one reader, flag before variable before pyproject before default."""

from __future__ import annotations

import pytest

from aotc.runtime import settings
from aotc.runtime.errors import SettingInvalid, SettingUnknown


def test_order_of_precedence(monkeypatch):
    project = {"threads": 3}
    monkeypatch.delenv("AOTC_THREADS", raising=False)
    assert settings.read("AOTC_THREADS") == settings.Reading("AOTC_THREADS", 0, "default")
    found = settings.read("AOTC_THREADS", project=project)
    assert (found.value, found.origin) == (3, "pyproject")
    monkeypatch.setenv("AOTC_THREADS", "2")
    found = settings.read("AOTC_THREADS", project=project)
    assert (found.value, found.origin) == (2, "environment")
    found = settings.read("AOTC_THREADS", flag=1, project=project)
    assert (found.value, found.origin) == (1, "flag")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("AOTC_THREADS", "many"),
        ("AOTC_THREADS", "-1"),
        ("AOTC_THREADS", "1025"),
        ("AOTC_THREADS", "1.5"),
        ("AOTC_LOAD_VERIFY", "loud"),
        ("AOTC_FROZEN", "perhaps"),
        ("AOTC_TUNE", "Full"),
    ],
)
def test_bad_values_name_the_setting_and_its_origin(monkeypatch, name, text):
    monkeypatch.setenv(name, text)
    with pytest.raises(SettingInvalid) as caught:
        settings.read(name)
    message = str(caught.value)
    assert name in message
    assert text in message
    assert "environment" in message
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("AOTC_FROZEN", "1", True),
        ("AOTC_FROZEN", "false", False),
        ("AOTC_SKIP", "schedule, fold ,", ("schedule", "fold")),
        ("AOTC_DUMP", "/tmp/dump", "/tmp/dump"),
        ("NO_COLOR", "anything", True),
    ],
)
def test_values_by_type(monkeypatch, name, text, value):
    monkeypatch.setenv(name, text)
    assert settings.read(name).value == value


def test_an_empty_variable_is_unset(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "")
    monkeypatch.setenv("AOTC_THREADS", "")
    assert settings.read("NO_COLOR").value is False
    assert settings.read("AOTC_THREADS").origin == "default"


def test_unknown_names():
    with pytest.raises(SettingUnknown):
        settings.read("AOTC_SPEED")
    with pytest.raises(SettingUnknown, match="thread"):
        settings.check_project({"thread": 2})
    settings.check_project({"threads": 2, "cache-dir": "x"})


def test_cache_dir(monkeypatch):
    monkeypatch.delenv("AOTC_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/someone")
    assert settings.cache_dir().value == "/home/someone/.cache/aotc"
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache")
    assert settings.cache_dir().value == "/var/cache/aotc"
    monkeypatch.setenv("AOTC_CACHE_DIR", "/srv/aotc")
    assert settings.cache_dir() == settings.Reading("AOTC_CACHE_DIR", "/srv/aotc", "environment")


def test_every_row_is_complete():
    for name, row in settings.SETTINGS.items():
        assert row.name == name
        assert row.meaning
        assert row.expected
        assert settings.parse(row, row.default, "x") == row.default or row.default is None


SIZES = {
    "0": 0,
    "4096": 4096,
    "1kB": 1000,
    "1KiB": 1024,
    "10GiB": 10 << 30,
    "10 GiB": 10 << 30,
    "10G": 10**10,
    "1.5Mi": 3 << 19,
    "2tb": 2 * 10**12,
    "none": None,
}


@pytest.mark.parametrize("text", SIZES)
def test_sizes_have_units(monkeypatch, text):
    monkeypatch.setenv("AOTC_CACHE_MAX_SIZE", text)
    assert settings.read("AOTC_CACHE_MAX_SIZE").value == SIZES[text]


@pytest.mark.parametrize("text", ["much", "-1", "10 apples", "GiB", "1e9", "1.2.3", "10ib", "5ii"])
def test_other_sizes_are_refused(monkeypatch, text):
    monkeypatch.setenv("AOTC_CACHE_MAX_SIZE", text)
    with pytest.raises(SettingInvalid, match="10GiB"):
        settings.read("AOTC_CACHE_MAX_SIZE")
