"""E8: the watermark of the group is the lowest of all that is read, prepared, on its way, or without an owner."""

from dataclasses import replace

from recordpublisher.fetcher.leases.group_watermark import (
    ShardWatermark,
    WorkerWatermark,
    group_watermark,
    lowest_watermark,
)
from recordpublisher.fetcher.leases.lease_table import Lease, LeaseTable, ShardEnd
from recordpublisher.fetcher.leases.planning import GroupView
from recordpublisher.fetcher.leases.position_documents import StoredPosition
from recordpublisher.fetcher.leases.worker_record import WorkerRecord
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.positions import StartingPosition

IDLE = ShardWatermark(None, is_idle=True)


def record(worker, watermark, **more):
    return WorkerRecord(worker, 1, **{"watermark": watermark, "is_active": True, **more})


def view(*records, **leases):
    table = LeaseTable(9, leases={f"t/{shard}": lease for shard, lease in leases.items()})
    return GroupView(table, {each.worker: each for each in records})


def test_it_is_the_lowest_of_the_workers():
    assert group_watermark(view(record("a", 70), record("b", 50)), None) == 50


def test_a_worker_without_shards_or_with_idle_ones_does_not_count():
    assert group_watermark(view(record("a", 70), record("b", None, is_active=False)), None) == 70
    assert group_watermark(view(record("a", None, is_active=False)), 30) == 30


def test_a_shard_that_had_no_record_yet_holds_the_others():  # W2
    assert group_watermark(view(record("a", 70), record("b", None)), 30) == 30


def test_it_never_falls_not_for_a_worker_that_joins_either():  # W6
    behind = view(record("a", 50, group_watermark=60))
    assert group_watermark(behind, None) == 60
    assert group_watermark(behind, 65) == 65


def test_a_sealed_worker_counts_as_long_as_the_table_names_it():
    sealed = record("a", 50, is_sealed=True)
    assert group_watermark(view(sealed, record("b", 70), s=Lease("a", 3)), None) == 50
    assert group_watermark(view(sealed, record("b", 70), s=Lease("b", 9)), None) == 70


def test_a_sealed_worker_counts_for_the_tracker_timeout_at_most():
    sealed = record("a", 50, is_sealed=True)
    assert group_watermark(view(sealed, record("b", 70), s=Lease("a", 3)), None, frozenset("a")) == 70


def test_a_child_without_an_owner_counts_with_the_lowest_watermark_of_its_parents():
    both = ("t/p", "t/q")
    waiting = view(record("b", 70), p=Lease("b", 3), q=Lease("b", 4))
    one = replace(waiting, table=waiting.table.with_changes("b", ended={"t/p": ShardEnd(40, {"t/c": both})}))
    assert group_watermark(one, None) == 70
    two = replace(one, table=one.table.with_changes("b", ended={"t/q": ShardEnd(60, {"t/c": both})}))
    assert group_watermark(two, None) == 40
    assert group_watermark(replace(two, table=two.table.with_changes("b", taken={"t/c": 12})), None) == 70


def test_a_first_shard_without_an_owner_holds_the_others():
    assert group_watermark(view(record("b", 70), s=Lease(is_first=True)), 20) == 20


def test_a_shard_that_was_given_away_counts_a_while_longer():
    """Another worker may still use a reading of the table and the records from before the take."""
    worker = WorkerWatermark(10.0)
    worker.keep("t/s", ShardWatermark(50), now=100.0)
    assert worker.lowest({"t/other": ShardWatermark(70)}, [], now=109.0) == ShardWatermark(50)
    assert worker.lowest({"t/other": ShardWatermark(70)}, [], now=110.0) == ShardWatermark(70)


def test_a_shard_counts_from_its_preparation_on():
    prepared = StoredPosition(ShardState(StartingPosition.trim_horizon(), watermark=50))
    worker = WorkerWatermark(10.0)
    assert worker.lowest({}, [prepared], now=0.0) == ShardWatermark(50)
    assert worker.lowest({}, [replace(prepared, is_idle=True)], now=0.0) == IDLE


def test_the_lowest_of_several_shards():
    assert lowest_watermark([]) == lowest_watermark([IDLE, IDLE]) == IDLE
    assert lowest_watermark([IDLE, ShardWatermark(5), ShardWatermark(7)]) == ShardWatermark(5)
    assert lowest_watermark([ShardWatermark(None), ShardWatermark(7)]) == ShardWatermark(None)
