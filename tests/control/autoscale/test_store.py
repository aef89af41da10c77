import pytest

from headrace.control.autoscale.scaler import KEPT_BINS
from headrace.control.autoscale.store import MAX_MODELS, Store
from headrace.errors import ConfigError


def test_history_survives_a_restart(tmp_path):
    path = str(tmp_path / "deep" / "load.db")
    store = Store(path)
    store.add("m", {10: 1.5, 11: 2.5})
    store.add("m", {11: 3.0})
    store.close()
    again = Store(path)
    assert again.load("m") == {10: 1.5, 11: 3.0}
    assert again.load("other") == {}
    again.close()


def test_a_corrupt_file_is_moved_aside_and_a_fresh_one_begun(tmp_path):
    path = tmp_path / "load.db"
    path.write_bytes(b"SQLite format 3\0" + b"garbage" * 1000)
    store = Store(str(path))
    assert store.moved_to is not None
    assert (tmp_path / store.moved_to.rsplit("/", 1)[1]).read_bytes().endswith(b"garbage")
    store.add("m", {1: 1.0})
    assert store.load("m") == {1: 1.0}
    store.close()


@pytest.mark.parametrize("name", ["folder", "file/load.db"])
def test_a_path_that_cannot_be_used_is_named_and_left_alone(tmp_path, name):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match=r"autoscale\.history_path: cannot use"):
        Store(str(tmp_path / name))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_a_file_that_breaks_later_does_not_stop_scaling(tmp_path, caplog):
    store = Store(str(tmp_path / "load.db"))
    store.db.execute("DROP TABLE load")
    store.add("m", {1: 1.0})
    assert store.load("m") == {}
    assert "not written" in caplog.text
    assert "not read" in caplog.text
    store.close()


def test_old_bins_and_the_models_seen_longest_ago_are_dropped():
    store = Store(None)
    store.add("m", {0: 1.0})
    store.add("m", {KEPT_BINS + 1: 2.0})
    assert store.load("m") == {KEPT_BINS + 1: 2.0}
    for n in range(MAX_MODELS + 5):
        store.add(f"model-{n}", {KEPT_BINS + 2 + n: 1.0})
    assert store.load("m") == {}
    assert store.load(f"model-{MAX_MODELS + 4}") != {}
    store.close()
