"""Checkpoints in a folder: replaced as a whole, fenced by generation."""

import json

import pytest

from recordpublisher import ConfigurationError, FencedError, FileStateStore, Properties, StateError


async def test_a_replaced_process_cannot_store(tmp_path):  # S6
    sleeper, successor = FileStateStore(tmp_path), FileStateStore(tmp_path)
    old, new = await sleeper.open_generation(0), await successor.open_generation(0)
    await successor.store(0, new, {"position": "new"})

    with pytest.raises(FencedError, match=f"generation {new} of subtask 0 owns"):
        await sleeper.store(0, old, {"position": "old"})

    assert await successor.load() == [{"position": "new"}]


async def test_the_state_of_an_earlier_version_is_refused(tmp_path):
    (tmp_path / "subtask-0.json").write_text("{}")

    for opened in (FileStateStore(tmp_path).load(), FileStateStore(tmp_path).open_generation(0)):
        with pytest.raises(
            StateError, match=r"subtask-0\.json in .* cannot be read: it has format 1, this version reads"
        ):
            await opened


async def test_the_snapshot_is_one_readable_file(tmp_path):
    store = FileStateStore(tmp_path)
    await store.store(0, await store.open_generation(0), {"version": 1})

    (file,) = tmp_path.glob("subtask-0.versions/value-*")
    assert json.loads(file.read_text())["snapshot"] == {"version": 1}


async def test_a_crash_during_a_write_leaves_the_old_state(tmp_path):
    store = FileStateStore(tmp_path)
    generation = await store.open_generation(0)
    await store.store(0, generation, {"good": 1})
    (tmp_path / "subtask-0.versions" / "value-later").write_text('{"ha": ')
    (tmp_path / ".aside").mkdir()
    (tmp_path / ".aside" / "value-first").write_text('{"ha": ')

    assert await store.load() == [{"good": 1}]


def test_a_uri_of_another_kind_is_refused():
    with pytest.raises(ConfigurationError, match=r"flink\.state\.uri.*a path or a file:// URI"):
        FileStateStore(Properties({"flink.state.uri": "s3://bucket/key"}))
