"""Files that survive a crash: folders are made with those above them."""

from __future__ import annotations

from recordpublisher.plugins.stores.durable_files import make_folder


def test_a_folder_is_made_with_the_missing_ones_above_it(tmp_path):
    make_folder(tmp_path / "stream" / "shard")
    make_folder(tmp_path / "stream" / "shard")

    assert (tmp_path / "stream" / "shard").is_dir()
