"""PER_SHARD: the records of a shard wait for those of its ancestors, also of one behind a shard that had no records."""

import time

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.sink import Checkpoint, SinkContext
from recordpublisher.plugins.sinks.map.ordering import ShardLineage
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shards import Shard
from recordpublisher.testing import run_virtual

from .map_jobs import Running, settled

A, OTHER = Shard("s", "a"), Shard("s", "other")
B = Shard("s", "b", ("a",))
C = Shard("s", "c", ("b",))


def state(*shards):
    return {"version": 2, "shards": {shard.key: {"parents": list(shard.parents)} for shard in shards}}


def begun(*known, begins=(), unhandled=("a", "other")):
    lineage = ShardLineage()
    if known:
        lineage.learn(state(*known))
    for shard in begins:
        lineage.begin(shard, set())
    return lineage.begin(C, set(unhandled))


def test_a_shard_waits_for_the_ancestor_behind_a_parent_without_records():
    assert begun(A, B, OTHER) == {"a"}


def test_a_shard_waits_for_its_parent_which_waits_for_its_own():
    assert begun(A, B, unhandled=("a", "b")) == {"b"}


def test_a_shard_whose_ancestors_are_not_known_waits_for_all_that_is_unhandled_of_its_stream():
    assert begun(A, OTHER) == {"a", "other"}
    assert begun() == {"a", "other"}


def test_a_shard_that_a_checkpoint_had_without_its_parents_waits_for_nothing():
    assert begun(C, OTHER) == set()


def test_a_parent_that_has_begun_and_is_handled_had_waited_for_its_own():
    assert begun(begins=(B,), unhandled=("other",)) == set()


def test_a_shard_that_has_begun_waits_for_nothing_more():
    assert begun(begins=(C,)) == set()


@pytest.mark.parametrize(("has_checkpoint", "waits_for"), [(True, [b"first"]), (False, [b"first", b"of another"])])
def test_records_behind_a_shard_without_records_are_handled_after_those_before_it(has_checkpoint, waits_for):
    async def job():
        handler, begun = Running(), []
        sink = rp.MapSink(handler, ordering="PER_SHARD")
        await sink.open(SinkContext())
        await sink.write(batch_of(A, b"first"))
        await sink.write(batch_of(OTHER, b"of another"))
        if has_checkpoint:
            await sink.flush(Checkpoint(state(A, B, OTHER), may_be_partial=True))
        await sink.write(batch_of(C, b"second"))
        await settled()
        for data in waits_for:
            begun.append(b"second" in handler.begun)
            handler.open[data].set_result(None)
            await settled()
        begun.append(b"second" in handler.begun)
        await sink.close()
        return begun

    assert run_virtual(job()) == [*(False for _ in waits_for), True]


def batch_of(shard, data):
    return RecordBatch(shard, [UserRecord(data, "1", 1_700_000_000.0, "key")], raw_count=1, raw_bytes=1)


@pytest.mark.parametrize("ordering", ["NONE", "PER_KEY", "PER_SHARD"])
@pytest.mark.usefixtures("no_garbage_collection")
def test_a_lineage_of_300_splits_and_merges_is_walked_in_no_time(ordering):
    """Each shard is split, and its children are merged: 2^300 paths lead to the first one."""
    shards = [Shard("orders", "m0")]
    for cycle in range(300):
        left, right = (Shard("orders", f"{side}{cycle}", (f"m{cycle}",)) for side in "lr")
        shards += [left, right, Shard("orders", f"m{cycle + 1}", (left.shard_id, right.shard_id))]

    async def job():
        sink = rp.MapSink(Running(), ordering=ordering)
        await sink.open(SinkContext())
        began = time.thread_time()
        await sink.write(batch_of(shards[0], b"first"))
        stored = await sink.flush(Checkpoint(state(*shards), may_be_partial=True))
        await sink.write(batch_of(shards[-1], b"last"))
        seconds = time.thread_time() - began
        await sink.close()
        return seconds, stored["shards"]

    seconds, stored = run_virtual(job())
    assert seconds < 0.2
    assert stored == {}  # nothing before the first record is handled
