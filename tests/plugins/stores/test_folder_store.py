"""FolderStore when another process acts between two of its calls to the file system, and when that fails."""

import errno
import shutil
from pathlib import Path

import pytest

from recordpublisher import StateError, StoreUnavailableError
from recordpublisher.plugins.stores.folder import FolderStore


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
