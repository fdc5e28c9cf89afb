"""Files that survive a crash: folders are made with those above them."""

import errno
import os

import pytest

from recordpublisher.plugins.stores.durable_files import make_folder, why_not_writable, write_file


def test_a_folder_is_made_with_the_missing_ones_above_it(tmp_path):
    make_folder(tmp_path / "stream" / "shard")
    make_folder(tmp_path / "stream" / "shard")

    assert (tmp_path / "stream" / "shard").is_dir()


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_file(tmp_path / "value-1", b"x")
    assert list(tmp_path.iterdir()) == []


def test_a_dangling_link_cannot_be_written_and_says_so(tmp_path):
    (tmp_path / "state").symlink_to(tmp_path / "gone")
    for folder in (tmp_path / "state", tmp_path / "state/below"):
        assert why_not_writable(folder) == f"{tmp_path}/state is a link to {tmp_path}/gone, which does not exist"
