"""Files that survive a crash: folders are made with those above them."""

import errno
import os
import re

import pytest

from recordpublisher.plugins.stores.durable_files import DurableFile, make_folder, path_of, why_not_writable, write_file
from recordpublisher.publishers.errors import ConfigurationError


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


def test_a_durable_file_has_its_folders_is_synced_when_it_is_closed_and_replaces_no_other_if_it_is_new(
    tmp_path, monkeypatch
):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
    path = tmp_path / "a" / "b"
    with DurableFile(path) as file:
        file.write(b"x" * 100)
        synced.clear()

    assert synced[0] == 100
    assert len(synced) == 2  # the file, and its name
    with pytest.raises(FileExistsError):
        DurableFile(path, is_new=True)
    assert path.read_bytes() == b"x" * 100


def test_a_durable_file_that_cannot_be_synced_is_closed_and_says_so(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    file = DurableFile(tmp_path / "a")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        file.close()
    assert file.closed


def test_a_dangling_link_cannot_be_written_and_says_so(tmp_path):
    (tmp_path / "state").symlink_to(tmp_path / "gone")
    for folder in (tmp_path / "state", tmp_path / "state/below"):
        assert why_not_writable(folder) == f"{tmp_path}/state is a link to {tmp_path}/gone, which does not exist"


def test_a_tilde_is_the_home_of_the_user_and_not_a_folder_of_that_name(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert path_of("~/state", "flink.state.uri") == "/home/me/state"
    assert path_of("/a/~b", "flink.state.uri") == "/a/~b"


@pytest.mark.parametrize(
    "path", ["C:/data/me@host", "s3-copies/a", "sqlite", "/a:b", "https", "./sqlite:a", "postgres/state"]
)
def test_a_path_that_only_resembles_a_uri_is_a_path(path):
    assert path_of(path, "flink.state.uri") == path


@pytest.mark.parametrize(
    ("location", "form"),
    [
        ("postgresql//loader:s3cret@127.0.0.1/shop", "postgresql://user@host/database"),
        ("postgresql:loader:s3cret@127.0.0.1/shop", "postgresql://user@host/database"),
        ("postgres+psycopg//loader:s3cret@h/shop", "postgresql://user@host/database"),
        ("loader:s3cret@127.0.0.1/shop", "a folder"),
        ("sqlite:x.db", "sqlite:////path/file.db"),
        ("SQLite//x.db", "sqlite:////path/file.db"),
        ("s3:bucket/state", "s3://bucket/prefix"),
        ("s3a://bucket/state", "s3://bucket/prefix"),
        ("dynamodb:table/job", "dynamodb://table/job"),
        ("gs://bucket/state", "gs://bucket/prefix"),
        ("gs:bucket/state", "gs://bucket/prefix"),
        ("abfs:container/state", "abfss://container@account"),
        ("vault://state", "a folder"),
    ],
)
def test_a_uri_that_is_not_one_of_a_folder_makes_no_folder(location, form):  # C2, C3
    with pytest.raises(ConfigurationError, match=re.escape(form)) as raised:
        path_of(location, "flink.sink.jsonl.path")
    assert "s3cret" not in str(raised.value)
