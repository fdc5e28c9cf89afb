"""Rows of the KCL's lease table, read and written."""

import pytest

from recordpublisher.plugins.positions.kcl_transfer import KclLease, lease_from_item, lease_to_item
from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.shards import HashRange

from fakes.kcl.lease_table import lease_item

SHARD = "shardId-000000000007"
STREAM_ID = "123456789012:orders:1700000000"


def read(item):
    return lease_from_item(item, "kcl:app")


def test_a_row_of_a_table_of_one_stream():
    item = lease_item(
        SHARD,
        "49590338271490256608559692538361571095921575989136588898",
        3,
        parentShardId={"SS": ["shardId-000000000002", "shardId-000000000001"]},
        childShardIds={"SS": ["shardId-000000000009"]},
        startingHashKey={"S": "0"},
        endingHashKey={"S": "99"},
        throughputKBps={"N": "1.5"},
    )
    assert read(item) == KclLease(
        SHARD,
        "49590338271490256608559692538361571095921575989136588898",
        3,
        17,
        "worker-1",
        None,
        ("shardId-000000000001", "shardId-000000000002"),
        ("shardId-000000000009",),
        HashRange(0, 99),
    )


def test_a_row_of_a_table_of_several_streams_names_its_stream():
    lease = read(lease_item(f"{STREAM_ID}:{SHARD}", streamName={"S": STREAM_ID}, shardId={"S": SHARD}))
    assert (lease.stream, lease.shard_id, lease.key) == ("orders", SHARD, f"{STREAM_ID}:{SHARD}")


@pytest.mark.parametrize(
    "entity", ["STREAM", "LEADER", "CLIENT_VERSION_MIGRATION", "TABLE_MIGRATION", "WORKER_METRIC_STATS"]
)
def test_other_entities_of_the_table_are_no_leases(entity):
    assert read({"leaseKey": {"S": "x"}, "entityType": {"S": entity}}) is None


def test_a_row_with_the_entity_type_lease_is_one():
    assert read(lease_item(SHARD, entityType={"S": "LEASE"})) == read(lease_item(SHARD))


@pytest.mark.parametrize(
    "item",
    [
        {"job": {"S": "a"}},
        lease_item(SHARD, checkpoint="49-7"),
        lease_item(SHARD, leaseCounter=None),
        lease_item("other", streamName={"S": STREAM_ID}, shardId={"S": SHARD}),
        lease_item(SHARD, startingHashKey={"S": "a"}, endingHashKey={"S": "b"}),
    ],
    ids=lambda item: str(item)[:40],
)
def test_what_is_no_row_of_the_kcl_is_refused_with_the_table(item):
    with pytest.raises(StateError, match="kcl:app"):
        read(item)


@pytest.mark.parametrize("stream_id", [None, STREAM_ID])
def test_what_is_written_is_read_again(stream_id):
    lease = KclLease(SHARD, "17", 3, 4, None, stream_id, ("a", "b"), ("c",), HashRange(5, 6))
    assert read(lease_to_item(lease)) == lease


def test_progress_orders_starts_numbers_and_the_end():
    ordered = [("TRIM_HORIZON", 0), ("9", 0), ("9", 4), ("10", 1), ("SHARD_END", 0)]
    leases = [KclLease(SHARD, checkpoint, sub) for checkpoint, sub in ordered]
    leases.reverse()
    assert [(each.checkpoint, each.sub_sequence) for each in sorted(leases, key=lambda each: each.progress)] == ordered


def test_a_row_that_is_not_of_a_shard_is_no_lease():
    assert read({"leaseKey": {"S": "migration"}, "state": {"S": "DONE"}}) is None


def test_a_lease_without_a_checkpoint_is_named_with_what_to_do():
    with pytest.raises(
        StateError, match=f"the row {SHARD} of kcl:app .*checkpoint.*. Delete the row, or let the KCL write"
    ):
        read({"leaseKey": {"S": SHARD}, "leaseCounter": {"N": "1"}})
