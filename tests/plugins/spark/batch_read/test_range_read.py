"""A task of a batch read: window after window up to its end, the same rows each time."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from recordpublisher.consumer.end_position import EndPosition
from recordpublisher.fetcher.pipeline.bounded_runs import BoundedResult, Bounds, EndReason, ShardOutcome
from recordpublisher.fetcher.pipeline.retention_gaps import ShardObservation
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.plugins.spark.batch_read import RangeRead, ShardRange
from recordpublisher.publishers.errors import ConfigurationError, DataLossError, OutageError, TransientError
from recordpublisher.publishers.positions import PositionType, StartingPosition

from fakes.spark.background_reads import at_once
from fakes.spark.simulated_kinesis import ARRIVED, SimulatedKinesis

WINDOW = Bounds(max_records=4, stop_at_tip=True)
"""A window has half of it, since the next one is read ahead."""


@pytest.fixture
def kinesis() -> SimulatedKinesis:
    made = SimulatedKinesis()
    made.add("a", [10, 20, 30, 40, 50])
    return made


def task(kinesis, end, start=None, read=None, **more) -> RangeRead:
    part = ShardRange(kinesis.shards["s/a"].shard, start or StartingPosition.trim_horizon(), end)
    return RangeRead([part], at_once(read or kinesis.read), WINDOW, 1_000, clock=kinesis.clock, **more)


def sequences(read: RangeRead) -> list[str]:
    return [number for batch in read.rows() for number in batch.column("sequenceNumber").to_pylist()]


def test_windows_are_read_until_the_tip(kinesis):
    assert sequences(task(kinesis, EndPosition(ARRIVED + 100))) == ["1", "2", "3", "4", "5"]
    assert len(kinesis.reads) == 3


def test_records_that_were_left_out_are_logged_for_each_window(kinesis, caplog):
    kinesis.skipped = {"s/a": 7}
    sequences(task(kinesis, EndPosition(ARRIVED + 100)))
    assert "a batch read left out 7 records that could not be used" in caplog.text


@pytest.mark.parametrize("end", [EndPosition(ARRIVED + 3), EndPosition(ARRIVED + 100, 4)])
def test_a_read_ends_before_the_first_record_at_its_end_whatever_arrives(kinesis, end):
    assert sequences(task(kinesis, end)) == ["1", "2", "3"]
    kinesis.shards["s/a"].times.append(60)
    assert sequences(task(kinesis, end)) == ["1", "2", "3"]


def test_a_tip_counts_if_every_record_before_the_end_can_be_read_there(kinesis):
    settled_ms = kinesis.clock.ms + 1_500

    def readable_late(*given):
        kinesis.shards["s/a"].times[5:] = [60] if kinesis.clock.ms >= settled_ms - 500 else []
        return kinesis.read(*given)

    read = task(kinesis, EndPosition(ARRIVED + 100), read=readable_late, settles_in=1.5, sleep=kinesis.clock.sleep)
    assert sequences(read) == ["1", "2", "3", "4", "5", "6"]


def test_the_end_settles_while_a_long_read_goes_on_and_nothing_more_is_waited_for(kinesis):
    waits = []
    assert len(sequences(task(kinesis, EndPosition(ARRIVED + 100), settles_in=0.1, sleep=waits.append))) == 5
    assert (sum(waits), len(kinesis.reads)) == (0, 3)


def test_shards_that_are_created_before_the_end_has_settled_are_read_too(kinesis):
    def later():
        looked_at.append(kinesis.clock.ms)
        return [ShardRange(kinesis.add("b", [10, 20]), StartingPosition.trim_horizon(), EndPosition(ARRIVED + 1))]

    looked_at, settled_ms = [], kinesis.clock.ms + 1_500
    read = task(kinesis, EndPosition(ARRIVED + 100), settles_in=1.5, sleep=kinesis.clock.sleep, later=later)
    assert sequences(read) == ["1", "2", "3", "4", "5", "1"]
    assert looked_at == [settled_ms]


def test_a_listing_that_fails_is_repeated_up_to_max_outage(kinesis):
    tries = []

    def later():
        tries.append(kinesis.clock.ms)
        raise TransientError("ListShards", "Unavailable", "away")

    with pytest.raises(OutageError, match="maxOutage"):
        sequences(task(kinesis, EndPosition(ARRIVED + 100), sleep=kinesis.clock.sleep, later=later))
    assert len(tries) > 1


def test_c2_an_end_at_a_record_that_is_not_there_yet_is_an_error_and_not_the_tip(kinesis):
    with pytest.raises(ConfigurationError, match="'endingPosition' is '9': s/a has no record at or after it"):
        sequences(task(kinesis, EndPosition(ARRIVED + 100, 9)))
    kinesis.close("a")
    assert sequences(task(kinesis, EndPosition(ARRIVED + 100, 9))) == ["1", "2", "3", "4", "5"]


def test_an_attempt_after_one_that_failed_returns_the_same_rows(kinesis):
    end = EndPosition(ARRIVED + 4)
    failed = task(kinesis, end).rows()
    assert next(failed).num_rows == 2
    failed.close()
    assert sequences(task(kinesis, end)) == ["1", "2", "3", "4"]


def test_a_service_that_is_away_is_waited_for_up_to_max_outage(kinesis):
    def away(shards, bounds, sink, publisher, **more):
        kinesis.clock.sleep(0.4)
        ((shard, state),) = shards.items()
        failed = ShardOutcome(shard, state, seen=ShardObservation(failure="GetRecords: Unavailable: away"))
        return BoundedResult(EndReason.MAX_TIME, {shard.key: failed})

    with pytest.raises(OutageError, match="maxOutage"):
        sequences(task(kinesis, EndPosition(ARRIVED), read=away))


def test_windows_grow_until_a_record_behind_many_empty_responses_is_found(kinesis):
    lengths = []

    def noted(shards, bounds, sink, publisher, **more):
        lengths.append(bounds.max_time)
        return kinesis.read(shards, bounds, sink, publisher)

    kinesis.empty_seconds["s/a"] = 10
    read = task(kinesis, EndPosition(ARRIVED + 100), read=noted)
    read.bounds = replace(WINDOW, max_time=1.5)
    assert next(read.rows()).num_rows == 2
    assert lengths == [1.5, 3, 6, 12, 1.5]  # the last one is read ahead


def start_at(number: int) -> StartingPosition:
    return StartingPosition(PositionType.AT_SEQUENCE_NUMBER, str(number))


def leaving_out(kinesis, *numbers: int):
    """Reads as with SKIP, if these records cannot be used."""

    def read(shards, bounds, sink, publisher, **more):
        class Usable:
            async def write(self, batch):
                kept = [at for at, number in enumerate(batch.sequence_numbers) if int(number) not in numbers]
                left_out.append(len(batch) - len(kept))
                for at in kept:
                    await sink.write(batch.slice(at, at + 1))

        left_out: list[int] = []
        result = kinesis.read(shards, bounds, Usable(), publisher)
        outcomes = {
            key: replace(
                outcome,
                records=outcome.records - sum(left_out),
                seen=msgspec.structs.replace(outcome.seen, skipped=sum(left_out)),
            )
            for key, outcome in result.shards.items()
        }
        return replace(result, shards=outcomes)

    return read


@pytest.mark.parametrize("accepts_loss", [False, True])
def test_a_start_at_a_record_that_skip_leaves_out_is_no_loss(kinesis, caplog, accepts_loss):
    read = task(kinesis, EndPosition(ARRIVED + 100), start_at(2), leaving_out(kinesis, 2), accepts_loss=accepts_loss)
    assert sequences(read) == ["3", "4", "5"]
    read = task(kinesis, EndPosition(ARRIVED + 100), start_at(2), leaving_out(kinesis, 2, 3), accepts_loss=accepts_loss)
    assert sequences(read) == ["4", "5"]
    assert "does not have the record" not in caplog.text


@pytest.mark.parametrize("left_out", [(4,), (4, 5)])
def test_an_end_at_a_record_that_skip_leaves_out_is_an_end(kinesis, left_out):
    assert sequences(task(kinesis, EndPosition(ARRIVED + 100, 4), read=leaving_out(kinesis, *left_out))) == [
        "1",
        "2",
        "3",
    ]


def test_s5_a_start_in_a_shard_whose_records_are_all_gone_is_a_loss_and_not_an_empty_read(kinesis, caplog):
    def nothing(shards, bounds, sink, publisher, **more):
        return kinesis.read({shard: ShardState(start_at(6)) for shard in shards}, bounds, sink, publisher)

    with pytest.raises(DataLossError, match="does not have the record 2, at which the read starts"):
        sequences(task(kinesis, EndPosition(ARRIVED + 100), start_at(2), nothing))
    assert sequences(task(kinesis, EndPosition(ARRIVED + 100), start_at(2), nothing, accepts_loss=True)) == []
    assert caplog.text.count("does not have the record 2") == 1


def test_s5_a_part_of_which_only_the_end_is_left_is_a_loss(kinesis):
    def from_the_fourth(shards, bounds, sink, publisher, **more):
        return kinesis.read({shard: ShardState(start_at(4)) for shard in shards}, bounds, sink, publisher)

    with pytest.raises(DataLossError, match="does not have the record 2, at which the read starts"):
        sequences(task(kinesis, EndPosition(ARRIVED + 100, 4), start_at(2), from_the_fourth))
    assert sequences(task(kinesis, EndPosition(ARRIVED + 100, 4), start_at(4), from_the_fourth)) == []


def test_s5_a_start_whose_record_is_gone_follows_fail_on_data_loss(kinesis, caplog):
    def from_the_second(shards, bounds, sink, publisher, **more):
        later = {shard: replace(state, start=StartingPosition.trim_horizon()) for shard, state in shards.items()}
        return kinesis.read(later, bounds, sink, publisher)

    start = StartingPosition(PositionType.AT_SEQUENCE_NUMBER, "0")
    end = EndPosition(ARRIVED + 2)
    with pytest.raises(DataLossError, match="does not have the record 0, at which the read starts"):
        sequences(task(kinesis, end, start, from_the_second))
    assert sequences(task(kinesis, end, start, from_the_second, accepts_loss=True))[:2] == ["1", "2"]
    assert "start" in caplog.text
