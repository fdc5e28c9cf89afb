"""Bounded runs of a process that shares the shards: it has none at its start, and children come with a later lease (S2, S8)."""

from dataclasses import replace

from recordpublisher.fetcher.pipeline.bounds import Bounds, EndReason
from recordpublisher.testing import run_virtual

from fakes.leases.elastic_processes import ConnectedStore, ElasticProcess, ElasticProcesses, TimedSink


async def read_to_the_tip(group):
    sink = TimedSink(group.rows, cost=0)
    process = ElasticProcess(group.source, ConnectedStore(group.store), sink, {}, ["s"])
    await process.fetcher.open()
    result = await process.fetcher.run_bounded(Bounds(stop_at_tip=True, max_time=600))
    await process.fetcher.close()
    return result.reason


def test_the_first_process_reads_what_there_is_before_it_says_tip():
    group = ElasticProcesses(shards=3)
    group.send()
    assert run_virtual(read_to_the_tip(group)) is EndReason.TIP
    assert sorted(group.rows) == sorted(group.sent)


def test_the_children_of_a_shard_that_was_split_are_read_before_it_says_tip():
    group = ElasticProcesses(shards=1)
    group.send()
    group.source.split("shard-0", "left", "right")
    parent = group.source.shards["s/shard-0"]
    parent.shard = replace(parent.shard, closed=True)
    group.send()
    assert run_virtual(read_to_the_tip(group)) is EndReason.TIP
    assert sorted(group.rows) == sorted(group.sent)
    assert len(group.rows) == 15
