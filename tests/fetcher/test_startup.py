"""Where a job begins: the global watermark of a restored one (W6), and what the log says."""

import logging

from recordpublisher.fetcher.checkpoints.shard_starts import Starts
from recordpublisher.fetcher.pipeline.bounded_runs import Bounds
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.fetcher.startup import OpenedJob
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.testing.virtual_time import run_virtual

from fakes.scripted_source import RecordingSink, ScriptedSource, make_fetcher
from fakes.shard_entries import START, shard

ENDED = ShardState(START, ended=True)


def lowest_watermark(*shards_and_states):
    shards = [shard for shard, _ in shards_and_states]
    states = {shard.key: state for shard, state in shards_and_states}
    return OpenedJob(shards, states, Starts(START), None, 1).lowest_watermark


def at(watermark):
    return ShardState(START, watermark=watermark)


def test_a_restored_job_begins_at_the_lowest_watermark_of_its_open_shards():
    assert lowest_watermark((shard("a"), at(40)), (shard("b"), at(7)), (shard("c"), ENDED)) == 7


def test_an_open_shard_without_a_watermark_counts_as_lowest():  # W2
    assert lowest_watermark((shard("a"), at(40)), (shard("b"), at(None))) is None


def test_the_parent_of_a_shard_that_waits_counts_in_its_place():  # W5
    assert lowest_watermark((shard("a"), at(40)), (shard("b", "a"), at(None))) == 40


def test_the_child_of_an_ended_shard_without_records_counts_as_lowest():  # W5
    assert lowest_watermark((shard("a"), at(40)), (shard("p"), ENDED), (shard("b", "p"), at(None))) is None


def test_no_record_of_a_shard_without_a_stored_watermark_is_late_after_a_restart():  # W13
    source, sink = ScriptedSource(), RecordingSink()
    source.add("a", 10_000, 20_000)

    async def job():
        first = make_fetcher(source, RecordingSink())
        await first.open()
        await first.run_bounded(Bounds(max_records=2))
        source.add("b", 3_000, 30_000)
        source.shards["s/a"].put(30_000)
        second = make_fetcher(source, sink, {"flink.watermark.lookahead.millis": 0}, restore=(first.snapshot(),))
        await second.open()
        await second.run_bounded(Bounds(max_records=3))
        return second.metrics()["worker"]["lateAfterIdle"]

    assert run_virtual(job()) == 0
    assert sink.rows[0] == ("b", 3_000)


def test_the_log_says_that_a_start_at_latest_reads_no_older_records(caplog):
    source = ScriptedSource()
    source.add("a", 1)

    async def job():
        await make_fetcher(source, RecordingSink(), starts=Starts(StartingPosition.latest())).open()

    with caplog.at_level(logging.INFO, "recordpublisher.start"):
        run_virtual(job())
    (line,) = [line for line in caplog.messages if " of s; it " in line]
    assert "it begins at LATEST, as of 20" in line
    assert line.endswith("no positions are stored, and older records are not read (flink.stream.initpos)")


def test_the_log_says_that_the_stored_positions_are_of_shards_which_are_gone(caplog):
    source = ScriptedSource()
    source.add("b", 1)

    async def job():
        before = ScriptedSource()
        before.add("a", 1)
        first = make_fetcher(before, RecordingSink())
        await first.open()
        await first.run_bounded(Bounds(max_records=1))
        given = {"flink.state.dataloss": "CONTINUE"}
        await make_fetcher(source, RecordingSink(), given, restore=(first.snapshot(),)).open()

    with caplog.at_level(logging.INFO, "recordpublisher.start"):
        run_virtual(job())
    lines = [line for line in caplog.messages if " of s; it " in line]
    assert lines[-1].endswith("it begins at TRIM_HORIZON: 1 stored position found, but of other shards")
