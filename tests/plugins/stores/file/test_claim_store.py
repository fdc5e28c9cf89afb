"""Claims as files: the first writer wins, whoever it is, and what cannot hold claims says so."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from recordpublisher.plugins.stores.file.claim_store import FileClaimStore
from recordpublisher.plugins.stores.ports import BatchId
from recordpublisher.publishers.errors import ConfigurationError

BATCH = BatchId("query", 7, "plan")


def test_the_first_writer_wins(tmp_path):
    store = FileClaimStore(tmp_path)
    assert store.put_if_absent(BATCH, "g", b"first") == b"first"
    assert store.put_if_absent(BATCH, "g", b"second") == b"first"
    assert store.get(BATCH, "g") == b"first"


def test_many_writers_at_once_agree_on_one(tmp_path):
    store = FileClaimStore(tmp_path)
    with ThreadPoolExecutor(16) as pool:
        answers = set(pool.map(lambda n: store.put_if_absent(BATCH, "g", b"%d" % n), range(64)))
    assert answers == {store.get(BATCH, "g")}


def test_a_claim_that_nobody_made_is_none(tmp_path):
    assert FileClaimStore(tmp_path).get(BATCH, "g") is None
    assert FileClaimStore(tmp_path).load(BATCH) == {}


def test_load_gives_every_claim_of_the_plan_and_of_no_other(tmp_path):
    store = FileClaimStore(tmp_path)
    store.put_if_absent(BATCH, "a", b"1")
    store.put_if_absent(BATCH, "b", b"2")
    store.put_if_absent(BatchId("query", 7, "other"), "a", b"3")
    assert store.load(BATCH) == {"a": b"1", "b": b"2"}


def test_nothing_half_written_is_left_or_seen(tmp_path):
    store = FileClaimStore(tmp_path)
    store.put_if_absent(BATCH, "a", b"1")
    store.put_if_absent(BATCH, "a", b"2")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["a.json"]


def test_purge_forgets_older_batches_of_one_query(tmp_path):
    store = FileClaimStore(tmp_path)
    for query in ("query", "other"):
        for number in (1, 2, 3):
            store.put_if_absent(BatchId(query, number, "plan"), "a", b"1")
    store.purge("query", before=3)
    store.purge("never-seen", before=3)
    kept = [number for number in (1, 2, 3) if store.load(BatchId("query", number, "plan"))]
    assert kept == [3]
    assert store.load(BatchId("other", 1, "plan"))


def test_a_probe_is_seen_through_the_same_location_only(tmp_path):
    FileClaimStore(tmp_path / "a").plant_probe("query", "token")
    FileClaimStore(tmp_path / "a").see_probe("query", "token")
    with pytest.raises(ConfigurationError, match="cannot see what the driver wrote"):
        FileClaimStore(tmp_path / "b").see_probe("query", "token")


def test_a_location_without_hard_links_is_a_configuration_error(tmp_path, monkeypatch):
    def no_link(*args):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_link)
    with pytest.raises(ConfigurationError, match="hard links"):
        FileClaimStore(tmp_path).plant_probe("query", "token")
