"""Committed files get their names whatever other programs do to the folder in the meantime (S6)."""

import errno
import os

import pytest

from recordpublisher import StoreUnavailableError
from recordpublisher.plugins.sinks.files import staged_files
from recordpublisher.plugins.sinks.files.staged_files import StagedFiles, name_after_clash

NAME = "orders/shardId-0/1.-1-2.-1.jsonl"


@pytest.fixture
async def files(tmp_path):
    made = StagedFiles(str(tmp_path))
    await made.open()
    return made


async def staged_in(files):
    staged, _ = await files.stage("life", 1, {NAME: lambda path: path.write_bytes(b"1\n2\n")})
    return staged


async def test_a_file_whose_two_names_have_other_content_gets_a_third(files, tmp_path):
    """A crash came between the name and the end of its publishing, and a replay of dead letters has rewritten the file."""
    staged = await staged_in(files)
    second = name_after_clash(*staged[0])
    for name in (NAME, second):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"2\n")

    assert await files.publish(staged) == []

    (third,) = {path.name for path in (tmp_path / NAME).parent.iterdir()} - {
        name.rpartition("/")[2] for name in (NAME, second)
    }
    assert (tmp_path / NAME).with_name(third).read_bytes() == b"1\n2\n"
    assert len(third) == len(second.rpartition("/")[2])
    assert not (tmp_path / staged[0][0]).exists()


async def test_a_folder_that_is_removed_at_that_moment_loses_no_file(files, tmp_path, monkeypatch):
    """It counted as published by another process, so that its entry was dropped and the file deleted later."""
    staged, make_folder = await staged_in(files), staged_files.make_folder

    def make_and_lose(folder):
        make_folder(folder)
        folder.rmdir()  # as a program that removes empty folders

    with monkeypatch.context() as patched:
        patched.setattr(staged_files, "make_folder", make_and_lose)
        with pytest.raises(StoreUnavailableError, match="removed"):
            await files.publish(staged)

    assert await files.publish(staged) == []
    assert (tmp_path / NAME).read_bytes() == b"1\n2\n"


async def test_a_name_that_cannot_be_looked_up_does_not_count_as_missing(files, tmp_path, monkeypatch):
    """`os.path.exists`, and `Path.exists` since Python 3.14, is False for a stale handle of a network file system."""
    staged, stat = await staged_in(files), os.stat
    assert await files.publish(staged) == []

    def stale(path, *arguments, **more):
        if os.fspath(path) == str(tmp_path / NAME):
            raise OSError(errno.ESTALE, "Stale file handle")
        return stat(path, *arguments, **more)

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", stale)
        with pytest.raises(StoreUnavailableError):
            await files.publish(staged)

    assert await files.publish(staged) == []
