"""Files that survive a crash: one replacement is visible as a whole, and folders are made with those above them."""

from __future__ import annotations

import os

import pytest

from recordpublisher.plugins.stores.durable_files import make_folder, replace_file, write_file


def test_a_replaced_file_has_the_new_content_and_leaves_no_temporary_file(tmp_path):
    path = tmp_path / "positions.json"
    replace_file(path, b"a longer old content")

    replace_file(path, b"new")

    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_replaced_keeps_its_content(tmp_path):
    path = tmp_path / "positions.json"
    write_file(path, b"old")
    path.with_suffix(f".{os.getpid()}.tmp").mkdir()

    with pytest.raises(OSError, match="directory"):
        replace_file(path, b"new")

    assert path.read_bytes() == b"old"


def test_a_folder_is_made_with_the_missing_ones_above_it(tmp_path):
    make_folder(tmp_path / "stream" / "shard")
    make_folder(tmp_path / "stream" / "shard")

    assert (tmp_path / "stream" / "shard").is_dir()
