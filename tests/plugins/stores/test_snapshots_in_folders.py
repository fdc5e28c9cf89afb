"""Positions in a folder: readable, and replaced as a whole."""

import json

from recordpublisher import FolderStore

from fakes.stored_job import SHARD, snapshot_at, states_in, store_alone


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
