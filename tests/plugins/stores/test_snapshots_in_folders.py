"""Snapshots in a folder: readable, and replaced as a whole."""

import json

import pytest

from recordpublisher import FolderStore, StateError
from recordpublisher.fetcher.checkpoints.snapshot_store import SnapshotStore


async def test_the_state_of_an_earlier_version_is_refused(tmp_path):
    (tmp_path / "subtask-0.json").write_text("{}")

    for opened in (
        SnapshotStore(FolderStore(tmp_path)).load(),
        SnapshotStore(FolderStore(tmp_path)).open_generation(0),
    ):
        with pytest.raises(
            StateError, match=r"subtask-0\.json in .* cannot be read: it has format 1, this version reads"
        ):
            await opened


async def test_the_snapshot_is_one_readable_file(tmp_path):
    store = SnapshotStore(FolderStore(tmp_path))
    await store.store(0, await store.open_generation(0), {"version": 1})

    (file,) = tmp_path.glob("subtask-0.versions/value-*")
    assert json.loads(file.read_text())["snapshot"] == {"version": 1}


async def test_a_crash_during_a_write_leaves_the_old_state(tmp_path):
    store = SnapshotStore(FolderStore(tmp_path))
    generation = await store.open_generation(0)
    await store.store(0, generation, {"good": 1})
    (tmp_path / "subtask-0.versions" / "value-later").write_text('{"ha": ')
    (tmp_path / ".aside").mkdir()
    (tmp_path / ".aside" / "value-first").write_text('{"ha": ')

    assert await store.load() == [{"good": 1}]
