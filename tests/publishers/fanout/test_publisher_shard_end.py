"""A shard ends with an event without continuation, or with children (F2)."""

from recordpublisher.publishers.base import RunResult
from recordpublisher.publishers.shards import Shard

from fakes.fanout_harness import FanOutHarness
from fakes.fanout_service import event, shard_end

CHILD = Shard("orders", "shardId-000000000001", parents=("shardId-000000000000",))


def test_f2_children_end_the_shard_also_with_a_continuation():
    harness = FanOutHarness((event(1), event(2, children=(CHILD,))))

    assert harness.read_all() is RunResult.COMPLETE
    assert harness.sequences == ["1", "2"]
    assert harness.batches[-1].child_shards == (CHILD,)


def test_f2_no_continuation_ends_the_shard_also_without_children():
    harness = FanOutHarness((shard_end(1),))

    assert harness.read_all() is RunResult.COMPLETE
