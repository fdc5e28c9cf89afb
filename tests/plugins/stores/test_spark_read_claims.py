"""The contract of claim stores, for every back end: the first writer wins."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from recordpublisher import ConfigurationError, Properties
from recordpublisher.fetcher.conditional_store import ConflictError
from recordpublisher.plugins.spark.python_worker import worker_loop
from recordpublisher.plugins.stores.spark_read_claims import (
    BatchId,
    ReadClaimStore,
    StoredClaims,
    read_claim_store_of,
    run_without_loop,
)

from fakes.memory_store import MemoryStore

LOCATIONS = {
    "folder": "{folder}/claims",
    "file": "file:{folder}/claims",
    "s3": "s3a://bucket/{name}/claims",
    "dynamodb": "dynamodb://claims/{name}",
}
BATCH = BatchId("query", 7, "plan")


@pytest.fixture(params=LOCATIONS)
def store(request, tmp_path, aws):
    location = LOCATIONS[request.param].format(folder=tmp_path, name=tmp_path.name)
    store = read_claim_store_of(location, aws, worker_loop().run)
    store.write_marker("query", "token")
    yield store
    store.close()


def test_the_first_writer_wins(store):
    assert store.get(BATCH, "g", "token") is None
    assert store.put_if_absent(BATCH, "g", b"first") == b"first"
    assert store.put_if_absent(BATCH, "g", b"second") == b"first"
    assert store.get(BATCH, "g", "token") == b"first"


def test_load_returns_the_claims_of_one_plan_only(store):
    assert store.load(BATCH, ["a", "b"], "token") == StoredClaims({}, has_marker=True)
    store.put_if_absent(BATCH, "a", b"1")
    store.put_if_absent(BATCH, "b", b"2")
    store.put_if_absent(BatchId("query", 7, "other"), "a", b"3")
    store.put_if_absent(BatchId("query2", 7, "plan"), "a", b"4")
    assert store.load(BATCH, ["a", "b", "c"], "token") == StoredClaims({"a": b"1", "b": b"2"}, has_marker=True)
    assert not store.load(BATCH, ["a"], "another").has_marker


def test_purge_deletes_older_batches_of_one_query(store):
    for query in ("query", "other"):
        for number in (1, 2, 10):
            store.put_if_absent(BatchId(query, number, "plan"), "a", b"1")
    store.purge("query", before=10)
    store.purge("never-seen", before=3)
    kept = [number for number in (1, 2, 10) if store.load(BatchId("query", number, "plan"), ["a"], "token").claims]
    assert kept == [10]
    assert store.load(BatchId("other", 1, "plan"), ["a"], "token").claims
    assert store.has_marker("query", "token")


def test_the_queries_are_those_with_claims(store):
    assert store.queries() == set()
    store.put_if_absent(BATCH, "g", b"first")
    store.put_if_absent(BatchId("another", 1, "plan"), "g", b"first")
    assert store.queries() == {"query", "another"}


def test_a_marker_is_found_only_where_it_was_written(store):
    store.write_marker("query", "token")
    assert store.has_marker("query", "token")
    assert not store.has_marker("query", "another")
    with pytest.raises(ConfigurationError, match="cannot see the values that the driver has stored"):
        store.get(BATCH, "g", "another")


def test_a_missing_bucket_is_a_configuration_error(aws):
    store = read_claim_store_of("s3://no-such-bucket/x", aws, worker_loop().run)
    with pytest.raises(ConfigurationError, match="NoSuchBucket") as raised:
        store.write_marker("query", "token")
    store.close()
    assert "s3cr3t" not in str(raised.value)


def test_another_location_is_an_error_that_says_what_is_valid():
    with pytest.raises(
        ConfigurationError, match=r"a folder, s3://bucket/prefix, dynamodb://table/job, gs://.* abfss://"
    ):
        read_claim_store_of("hdfs://host/x", Properties(), run_without_loop)


def test_many_writers_at_once_agree_on_one(tmp_path):
    store = read_claim_store_of(str(tmp_path), Properties(), run_without_loop)
    with ThreadPoolExecutor(16) as pool:
        stored = set(pool.map(lambda n: store.put_if_absent(BATCH, "g", b"%d" % n), range(64)))
    assert stored == set(store.load(BATCH, ["g"], "token").claims.values())


async def test_it_works_inside_a_running_event_loop(store):
    assert store.put_if_absent(BATCH, "g", b"first") == b"first"


def test_a_folder_without_renames_is_a_configuration_error(tmp_path, monkeypatch):
    def no_rename(*given):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "rename", no_rename)
    with pytest.raises(ConfigurationError, match=r"claims .* cannot be stored there: .*Operation not permitted"):
        read_claim_store_of(str(tmp_path), Properties(), run_without_loop).write_marker("query", "token")


def test_a_claim_that_is_not_stored_is_not_returned_as_stored():
    """The store found another claim, which was deleted before it could be read."""

    class Store(MemoryStore):
        async def put_if_absent(self, name, value):
            raise ConflictError(self.place, name, None)

    with pytest.raises(ConflictError, match="nothing is stored there"):
        ReadClaimStore(Store(), run_without_loop).put_if_absent(BATCH, "g", b"mine")
