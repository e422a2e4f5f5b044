"""A cache that is only read below one's own, and caches shared between users."""

import pytest

from aotc.cache import FolderLayer, Key, Store
from aotc.cache.collect import share
from aotc.cache.errors import CacheUnsafe
from aotc.cache.store import RECORD, CacheWarning

KEY = Key.of("binaries", kernel="k")
OTHER = Key.of("binaries", kernel="other")
FILES = {"k.o": b"code"}


@pytest.fixture
def lower(tmp_path):
    store = Store(tmp_path / "lower")
    store.put(KEY, FILES)
    return store


@pytest.fixture
def layered(tmp_path, lower):
    return Store(tmp_path / "own", [FolderLayer(lower.root)])


def test_what_the_upper_one_lacks_comes_from_below_and_stays_there(layered, lower):
    before = sorted(lower.root.rglob("*"))
    assert layered.holds(KEY)
    assert dict(layered.get(KEY).files) == FILES
    assert (layered.counters.hits, layered.counters.misses) == (1, 0)
    assert not layered.path(KEY).exists()
    assert sorted(lower.root.rglob("*")) == before


def test_a_miss_in_both_is_one_miss_and_a_put_goes_above(layered, lower):
    assert not layered.holds(OTHER)
    assert layered.get(OTHER) is None
    assert layered.counters.misses == 1
    layered.put(OTHER, FILES)
    assert lower.get(OTHER) is None
    assert layered.get(OTHER) is not None


def test_damage_below_is_a_miss_and_is_left_alone(layered, lower):
    damaged = lower.path(KEY) / "k.o"
    damaged.chmod(0o600)
    damaged.write_bytes(b"cope")
    assert layered.get(KEY) is None
    assert damaged.read_bytes() == b"cope"
    assert layered.put(KEY, FILES)
    assert dict(layered.get(KEY).files) == FILES


def test_a_lower_folder_that_others_can_write_is_refused(tmp_path, lower):
    lower.root.chmod(0o777)
    with pytest.raises(CacheUnsafe):
        Store(tmp_path / "own", [FolderLayer(lower.root)])


def test_a_lower_folder_that_is_not_there_is_an_empty_one(tmp_path):
    store = Store(tmp_path / "own", [FolderLayer(tmp_path / "nowhere")])
    assert store.get(KEY) is None
    assert not (tmp_path / "nowhere").exists()


def test_shared_entries_can_be_read_by_everybody_and_written_by_nobody_else(lower):
    share(lower)
    entry = lower.path(KEY)
    for path in (lower.root, entry.parent, entry):
        assert path.stat().st_mode & 0o777 == 0o755
    for path in (entry / RECORD, entry / "k.o"):
        assert path.stat().st_mode & 0o777 == 0o444
    assert Store(lower.root).get(KEY) is not None


def test_a_cache_that_cannot_be_read_says_so_and_misses(lower, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("aotc.cache.store.read_entry", refuse)
    with pytest.warns(CacheWarning, match="cannot be read"):
        assert Store(lower.root).get(KEY) is None


def test_layers_are_asked_in_their_order(tmp_path, lower):
    second = Store(tmp_path / "second")
    second.put(KEY, {"k.o": b"code of the second"})
    second.put(OTHER, {"k.o": b"only in the second"})
    store = Store(tmp_path / "own", [FolderLayer(lower.root), FolderLayer(second.root)])
    assert dict(store.get(KEY).files) == FILES
    assert store.get(OTHER).files["k.o"] == b"only in the second"
    assert store.folder_of(OTHER) == second.path(OTHER)
    damaged = lower.path(KEY) / "k.o"
    damaged.chmod(0o600)
    damaged.write_bytes(b"cope")
    assert store.get(KEY).files["k.o"] == b"code of the second"


class Recording:
    """A layer that is far away: what it gives is kept above."""

    is_copied = True

    def __init__(self):
        self.asked = 0

    def get(self, key, required=()):
        self.asked += 1
        return FILES if key == KEY else None

    def folder_of(self, key):
        return None


def test_what_a_layer_that_is_copied_gives_is_asked_for_once(tmp_path):
    layer = Recording()
    store = Store(tmp_path / "own", [layer])
    assert dict(store.get(KEY).files) == dict(store.get(KEY).files) == FILES
    assert (layer.asked, store.counters.hits, store.counters.misses) == (1, 2, 0)
    assert store.folder_of(KEY) == store.path(KEY)
