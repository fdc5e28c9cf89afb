"""A task of a batch read with several shards: each to its own end, in order, and bounded together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future

import pytest

from recordpublisher.consumer.end_position import EndPosition
from recordpublisher.fetcher.checkpoints.starts import Starts
from recordpublisher.fetcher.pipeline.bounded_runs import BoundedResult, Bounds, EndReason, ShardOutcome
from recordpublisher.fetcher.pipeline.retention_gaps import ShardObservation
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.local import serve_in_thread
from recordpublisher.plugins.spark.batch_read import (
    RangeRead,
    ShardRange,
    background_reads,
    later_ranges,
    shard_lists,
    shared_reader,
)
from recordpublisher.plugins.spark.options.spark_options import SparkOptions
from recordpublisher.plugins.spark.read_range import ReadRange
from recordpublisher.plugins.spark.source.kinesis_service import KinesisService
from recordpublisher.publishers.errors import DataLossError, OutageError, StreamNotFoundError
from recordpublisher.publishers.positions import PositionType, StartingPosition

from fakes.spark.background_reads import at_once
from fakes.spark.simulated_kinesis import ARRIVED, SimulatedKinesis
from spark_jobs.queries import Kinesis

OLDEST, ALL = StartingPosition.trim_horizon(), EndPosition(ARRIVED + 100)
WINDOW = Bounds(max_time=1.5, max_records=4, max_bytes=1_000, stop_at_tip=True)
OLDEST_STATE = ShardState(OLDEST)


@pytest.fixture
def kinesis() -> SimulatedKinesis:
    made = SimulatedKinesis()
    made.add("a", [10] * 5)
    made.add("b", [10] * 9)
    made.add("c", [10] * 2)
    return made


def task(kinesis, ends, begin=None, starts=None, **more) -> RangeRead:
    parts = [
        ShardRange(kinesis.shards[f"s/{shard}"].shard, (starts or {}).get(shard, OLDEST), end)
        for shard, end in ends.items()
    ]
    return RangeRead(parts, begin or at_once(kinesis.read), WINDOW, 1_000, clock=kinesis.clock, **more)


def by_shard(read: RangeRead) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for batch in read.rows():
        for shard, number in zip(batch["shardId"].to_pylist(), batch["sequenceNumber"].to_pylist(), strict=True):
            found.setdefault(shard, []).append(int(number))
    return found


def test_each_shard_is_read_to_its_own_end_in_order_and_no_further(kinesis):
    ends = {"a": EndPosition(ARRIVED + 3), "b": ALL, "c": EndPosition(ARRIVED + 100, 2)}
    assert by_shard(task(kinesis, ends)) == {"a": [1, 2, 3], "b": [*range(1, 10)], "c": [1]}
    read = [shards for _, shards in kinesis.reads]
    assert read == [["s/a", "s/b", "s/c"], ["s/a", "s/b"], ["s/b"], ["s/b"], ["s/b"]]


@pytest.mark.parametrize("shards", [["a"], ["a", "b", "c"]])
def test_the_bounds_of_the_windows_are_those_of_the_task_however_many_shards_it_has(kinesis, shards):
    given = []

    def noted(starts, bounds, sink, publisher):
        given.append((bounds.max_records, bounds.max_bytes))
        return kinesis.read(starts, bounds, sink, publisher)

    by_shard(task(kinesis, dict.fromkeys(shards, ALL), at_once(noted)))
    assert set(given) == {(2, 500)}


def test_the_next_window_is_read_while_rows_of_the_last_one_are_handled_and_ends_with_the_task(kinesis):
    begun: list[Future] = []

    def begin(*given):
        begun.append(Future() if begun else at_once(kinesis.read)(*given))
        return begun[-1]

    rows = task(kinesis, {"a": ALL, "b": ALL}, begin).rows()
    assert next(rows).num_rows == 4
    assert [each.done() for each in begun] == [True, False]
    rows.close()
    assert begun[-1].cancelled()


def test_no_window_is_read_ahead_of_the_end(kinesis):
    assert by_shard(task(kinesis, {"c": ALL})) == {"c": [1, 2]}
    assert len(kinesis.reads) == 1


def test_one_shard_that_cannot_be_read_ends_the_task_after_max_outage_although_others_can(kinesis):
    def without_a(starts, bounds, sink, publisher):
        kinesis.clock.sleep(0.4)
        kinesis.shards["s/b"].times.extend([20] * 4)
        read = kinesis.read(
            {shard: state for shard, state in starts.items() if shard.shard_id != "a"}, bounds, sink, publisher
        )
        failed = {
            shard.key: ShardOutcome(shard, state, seen=ShardObservation(failure="GetRecords: Unavailable: away"))
            for shard, state in starts.items()
            if shard.shard_id == "a"
        }
        return BoundedResult(EndReason.MAX_TIME, {**read.shards, **failed})

    with pytest.raises(OutageError, match="maxOutage"):
        by_shard(task(kinesis, {"a": ALL, "b": ALL}, at_once(without_a)))


def test_s5_a_start_that_is_gone_is_found_for_each_shard(kinesis, caplog):
    starts = {"b": StartingPosition(PositionType.AT_SEQUENCE_NUMBER, "0")}

    def from_the_oldest(given, bounds, sink, publisher):
        found = {
            shard: state if state.start.type is PositionType.TRIM_HORIZON or state.position else OLDEST_STATE
            for shard, state in given.items()
        }
        return kinesis.read(found, bounds, sink, publisher)

    with pytest.raises(DataLossError, match="s/b does not have the record 0"):
        by_shard(task(kinesis, {"a": ALL, "b": ALL}, at_once(from_the_oldest), starts))
    left = task(kinesis, {"a": ALL, "b": ALL}, at_once(from_the_oldest), starts, accepts_loss=True)
    assert {shard: len(numbers) for shard, numbers in by_shard(left).items()} == {"a": 5, "b": 9}
    assert "s/b does not have the record 0" in caplog.text


def test_a_stream_that_is_deleted_meanwhile_is_an_error_and_no_end(kinesis):
    def deleted(starts, bounds, sink, publisher):
        return BoundedResult(EndReason.STREAMS_DELETED, {})

    with pytest.raises(StreamNotFoundError, match="stream 's' does not exist"):
        by_shard(task(kinesis, {"a": ALL}, at_once(deleted)))


# --- with the fetcher, on the embedded endpoint ------------------------------------------------------------------------------------


NEVER = 2**53


@pytest.fixture
def stream() -> Iterator[Kinesis]:
    """A stream of two shards with 1,200 records."""
    with serve_in_thread() as served:
        made = Kinesis(served, "several", 2)
        made.put(1_200)
        yield made


def sequences(stream: Kinesis) -> dict[str, list[int]]:
    """The records of each shard, in their order."""
    found: dict[str, list[int]] = {}
    for record in stream.records():
        found.setdefault(record.shard_id, []).append(int(record.sequence_number))
    return found


def on_endpoint(stream: Kinesis, ends: Mapping[str, int], outcomes: list[ShardOutcome], **bounds: int) -> RangeRead:
    """A task that reads every shard in small responses, some of them before the record of a sequence number."""
    given = {**stream.served.properties(), "flink.shard.getrecords.maxrecordcount": "100", "stream": stream.name}
    options = SparkOptions.parse(given, keeps_claims=False)
    service, reader = KinesisService(options), shared_reader(options)
    begin = background_reads(reader)
    try:
        shards = service.list_shards(stream.name)
    finally:
        service.close()

    def later():
        planned = frozenset(shard.key for shard in shards)
        return later_ranges((stream.name,), ReadRange(Starts(OLDEST), EndPosition(NEVER)), planned, shard_lists(reader))

    def noted(*arguments):
        future = begin(*arguments)
        future.add_done_callback(lambda ended: outcomes.extend(ended.result().shards.values()))
        return future

    parts = [ShardRange(shard, OLDEST, EndPosition(NEVER, ends.get(shard.shard_id))) for shard in shards]
    limits = Bounds(**{"max_time": 1.5, "max_records": 1_000_000, "stop_at_tip": True, **bounds})
    return RangeRead(parts, noted, limits, 60_000, later=later)


def test_a_parent_and_its_children_are_read_by_one_task_and_a_shard_past_its_end_is_read_no_further(stream):
    first = next(iter(sequences(stream)))
    stream.split(0)
    stream.put(200)
    held, outcomes = sequences(stream), []
    ends = {first: held[first][50]}
    assert by_shard(on_endpoint(stream, ends, outcomes)) == {**held, first: held[first][:50]}
    assert len(held) == 4
    read = sum(outcome.records for outcome in outcomes if outcome.shard.shard_id == first)
    assert read == 50  # of 600


def test_children_of_a_split_after_the_plan_are_read(stream):
    outcomes = []
    read = on_endpoint(stream, {}, outcomes)
    stream.split(0)
    stream.put(200)
    assert by_shard(read) == sequences(stream)
    assert len({outcome.shard.shard_id for outcome in outcomes}) == 4


def test_small_windows_read_every_row_once_and_in_order(stream):
    held, outcomes = sequences(stream), []
    assert by_shard(on_endpoint(stream, {}, outcomes, max_bytes=3_000)) == held
    assert len(outcomes) > 8


def test_reads_of_other_parts_of_a_stream_share_a_reader():
    """Otherwise a process that reads the newest minute, every minute, would open clients without end."""
    given = {"stream": "orders", "region": "eu-west-1", "flink.shard.getrecords.maxrecordcount": "7"}
    positions = [
        {},
        {"startingPosition": "2026-11-26T06:00:00Z", "endingposition": "2026-11-26T06:01:00Z"},
        {"startingPosition": '{"shardId-000000000000": "5"}', "endingPosition": '{"shardId-000000000000": "9"}'},
    ]
    readers = {shared_reader(SparkOptions.parse({**given, **each}, keeps_claims=False)) for each in positions}
    assert len(readers) == 1
