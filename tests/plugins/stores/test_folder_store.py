"""FolderStore when another process acts between two of its calls to the file system, and when that fails."""

import errno
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from recordpublisher import ConfigurationError, FolderStore, StateError, StoreUnavailableError, VersionedValue
from recordpublisher.plugins.stores import folder_store

from fakes.stored_job import SHARD, snapshot_at, states_in, store_alone


async def test_a_name_deleted_right_after_a_failed_rename_is_put(tmp_path, monkeypatch):
    store = FolderStore(tmp_path)
    await store.put_if_absent("name", b"earlier")
    rename = Path.rename

    def rename_then_delete(source, target):
        try:
            return rename(source, target)
        except OSError:
            shutil.rmtree(target)
            raise

    monkeypatch.setattr(Path, "rename", rename_then_delete)

    version = await store.put_if_absent("name", b"later")

    assert await store.list_versions("") == {"name": version}
    assert (await store.get("name")).value == b"later"


async def test_a_rename_that_a_network_file_system_sends_twice_is_no_conflict_and_leaves_nothing(tmp_path, monkeypatch):
    rename, sent = Path.rename, []

    def sent_twice(source, target):
        renamed = rename(source, target)
        if (source.name.startswith("."), target.name.startswith(".")) not in sent:
            sent.append((source.name.startswith("."), target.name.startswith(".")))
            raise FileNotFoundError(errno.ENOENT, "the second request finds nothing", str(source))
        return renamed

    monkeypatch.setattr(Path, "rename", sent_twice)
    store = FolderStore(tmp_path)

    version = await store.put_if_absent("name", b"first")
    assert (await store.get("name")).version == version
    version = await store.compare_and_set("name", b"second", version)
    assert (await store.get("name")).version == version
    await store.delete("name")
    assert list(tmp_path.iterdir()) == []


async def test_a_relative_folder_stays_where_it_is_when_the_current_folder_changes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = FolderStore("state")
    version = await store.put_if_absent("name", b"1")
    monkeypatch.chdir(tmp_path / "state")
    assert await store.list_versions("") == {"name": version}


async def test_a_folder_that_cannot_be_made_is_no_name_that_is_taken(tmp_path, monkeypatch):
    def missing(path, *more, **options):
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))

    monkeypatch.setattr(Path, "mkdir", missing)

    with pytest.raises(StateError, match="No such file or directory"):
        await FolderStore(tmp_path / "state").put_if_absent("name", b"value")


async def test_an_error_of_the_file_system_is_not_a_conflict(tmp_path, monkeypatch):
    store = FolderStore(tmp_path)
    await store.put_if_absent("name", b"earlier")

    def full(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "rename", full)

    with pytest.raises(StateError, match="No space left on device"):
        await store.put_if_absent("name", b"later")


@pytest.mark.parametrize(
    ("code", "is_away"), [(errno.ESTALE, True), (errno.ETIMEDOUT, True), (errno.EACCES, False), (errno.ENOSPC, False)]
)
async def test_a_network_file_system_that_is_away_is_told_apart(tmp_path, monkeypatch, code, is_away):
    def fail(path, *more, **options):
        raise OSError(code, "of the test")

    monkeypatch.setattr(Path, "mkdir", fail)

    with pytest.raises(StateError, match="of the test") as caught:
        await FolderStore(tmp_path).put_if_absent("name", b"value")

    assert isinstance(caught.value, StoreUnavailableError) is is_away


def test_a_link_to_a_folder_that_does_not_exist_is_refused(tmp_path):
    (tmp_path / "state").symlink_to(tmp_path / "gone")
    with pytest.raises(ConfigurationError, match=r"state is a link to .*gone, which does not exist"):
        FolderStore(tmp_path / "state" / "job")


@pytest.fixture
def pauses(monkeypatch):
    """The pauses between attempts, in seconds; none is waited for."""
    waited = []
    monkeypatch.setattr("recordpublisher.plugins.stores.folder_store.time", SimpleNamespace(sleep=waited.append))
    return waited


async def test_a_folder_that_becomes_a_dangling_link_is_an_error(tmp_path):
    store = FolderStore(tmp_path / "state")
    (tmp_path / "state").symlink_to(tmp_path / "gone")
    with pytest.raises(StateError, match="cannot be used"):
        await store.put_if_absent("name", b"value")


async def test_a_name_without_a_value_that_is_taken_again_and_again_is_an_error(tmp_path, monkeypatch, pauses):
    def taken(source, target):
        raise OSError(errno.EEXIST, "File exists")

    monkeypatch.setattr(Path, "rename", taken)
    with pytest.raises(StateError, match=r"name.*cannot be written: the name is taken, but no value is stored there"):
        await FolderStore(tmp_path).put_if_absent("name", b"value")
    assert len(pauses) == 100


async def test_a_parent_that_vanishes_again_and_again_is_an_error(tmp_path, monkeypatch, pauses):
    def gone(source, target):
        raise FileNotFoundError

    monkeypatch.setattr(Path, "rename", gone)
    with pytest.raises(StateError, match="cannot be written"):
        await FolderStore(tmp_path).put_if_absent("name", b"value")
    assert len(pauses) == 100


async def test_a_version_whose_value_is_missing_is_an_error(tmp_path, pauses):
    store = FolderStore(tmp_path)
    await store.put_if_absent("name", b"value")
    (file,) = (tmp_path / "name.versions").glob("value-*")
    file.unlink()
    with pytest.raises(StateError, match=r"name\.versions cannot be read: another program has removed the file"):
        await store.get("name")
    assert pauses


@pytest.mark.parametrize("name", ["../victim", "a/../../victim", "/victim", ".."])
async def test_a_name_outside_the_folder_is_refused(tmp_path, name):
    victim = FolderStore(tmp_path)
    await victim.put_if_absent("victim", b"kept")
    store = FolderStore(tmp_path / "state")
    for call in (
        store.get(name),
        store.put_if_absent(name, b"1"),
        store.compare_and_set(name, b"1", "v"),
        store.delete(name),
        store.list(f"{name}/"),
        store.list_names(f"{name}/"),
        store.list_versions(f"{name}/"),
    ):
        with pytest.raises(StateError, match=r"is not a valid name for a value in .*: it leads out of this folder"):
            await call
    assert (await victim.get("victim")).value == b"kept"


def test_a_location_with_a_null_character_is_a_configuration_error(tmp_path):
    with pytest.raises(ConfigurationError, match=r"flink\.state\.uri.*null"):
        FolderStore(f"file:{tmp_path}/a%00b", "flink.state.uri")


async def test_the_positions_are_one_readable_file(tmp_path):
    alone = await store_alone(FolderStore(tmp_path), snapshot_at(7))

    *_, newest = sorted(tmp_path.glob(f"**/positions/{alone.name}/0.versions/value-*"))
    ((shard, _, state),) = json.loads(newest.read_text())["positions"]
    assert (shard, state["position"]) == (SHARD, "7")


async def test_a_crash_during_a_write_leaves_the_old_state(tmp_path):
    store = FolderStore(tmp_path)
    alone = await store_alone(store, snapshot_at(7))
    (folder,) = tmp_path.glob(f"**/positions/{alone.name}/0.versions")
    (folder / "value-later").write_text('{"ha": ')
    (tmp_path / ".aside").mkdir()
    (tmp_path / ".aside" / "value-first").write_text('{"ha": ')

    assert (await states_in(store))[SHARD]["position"] == "7"


async def test_the_next_write_removes_values_that_killed_writers_have_left(tmp_path):
    store = FolderStore(tmp_path)
    version = await store.put_if_absent("name", b"1")
    (tmp_path / "name.versions" / "value-before-its-rename").write_bytes(b"2")

    version = await store.compare_and_set("name", b"3", version)

    files = sorted(path.name for path in (tmp_path / "name.versions").iterdir())
    assert files == [f"current-{version}", f"value-{version}"]


async def test_a_write_keeps_the_value_that_its_successor_is_about_to_name(tmp_path, monkeypatch):
    store, rename = FolderStore(tmp_path), Path.rename
    version = await store.put_if_absent("name", b"1")
    successor = tmp_path / "name.versions" / "value-successor"

    def rename_then_next_write_begins(source, target):
        renamed = rename(source, target)
        successor.write_bytes(b"3")
        return renamed

    monkeypatch.setattr(Path, "rename", rename_then_next_write_begins)
    await store.compare_and_set("name", b"2", version)

    assert successor.exists()


async def test_the_next_new_value_removes_temporary_folders_of_killed_processes_and_nothing_else(tmp_path):
    store = FolderStore(tmp_path)
    for name in (".0123456789abcdef", ".fedcba9876543210", ".git"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "value-1").write_bytes(b"1")
    for name in (".0123456789abcdef", ".git"):
        os.utime(tmp_path / name, (0, 0))

    await store.put_if_absent("a/b", b"1")

    assert sorted(path.name for path in tmp_path.iterdir()) == [".fedcba9876543210", ".git", "a"]


async def test_a_first_write_whose_folder_was_removed_while_its_process_was_suspended_writes_it_again(
    tmp_path, monkeypatch
):
    store, touch = FolderStore(tmp_path), Path.touch

    def suspended(path, *more, **options):
        monkeypatch.setattr(Path, "touch", touch)
        os.utime(path.parent, (0, 0))
        FolderStore(tmp_path)._put_if_absent("other", b"2")
        touch(path, *more, **options)

    monkeypatch.setattr(Path, "touch", suspended)
    version = await store.put_if_absent("name", b"1")

    assert await store.list("") == await FolderStore(tmp_path).list("")
    assert (await store.get("name")) == VersionedValue(b"1", version)
    assert not list(tmp_path.glob(".*"))


async def test_a_delete_whose_folder_another_delete_has_removed_is_no_error(tmp_path, monkeypatch):
    store = FolderStore(tmp_path)
    await store.put_if_absent("a/b/name", b"1")
    synced, sync = [], folder_store.sync

    def after_the_other(path):
        if not synced:
            shutil.rmtree(tmp_path / "a")
        synced.append(path)
        sync(path)

    monkeypatch.setattr(folder_store, "sync", after_the_other)
    await store.delete("a/b/name")
    assert len(synced) == 2
    assert await store.list_names("") == []
