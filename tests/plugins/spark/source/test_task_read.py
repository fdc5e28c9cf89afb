"""One task: it stores its claim before it returns rows, and all attempts return the rows of the first claim."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from recordpublisher.fetcher.pipeline.bounded_runs import BoundedResult, Bounds, EndReason, ShardOutcome
from recordpublisher.fetcher.pipeline.retention_gaps import ShardObservation
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.plugins.columns.record_columns import RECORD_SCHEMA
from recordpublisher.plugins.spark.row_columns import RowColumns
from recordpublisher.plugins.spark.source.claims import ReadClaim
from recordpublisher.plugins.spark.source.offset import ShardOffset
from recordpublisher.plugins.spark.source.task_plans import TaskPlan
from recordpublisher.plugins.spark.source.task_read import TaskRead, with_endless_retries
from recordpublisher.plugins.stores.spark_read_claims import BatchId, read_claim_store_of, run_without_loop
from recordpublisher.publishers.errors import (
    ConfigurationError,
    DataLossError,
    DeserializationError,
    OutageError,
    RetriesExhaustedError,
    StateError,
    StoreUnavailableError,
    StreamNotFoundError,
    TransientError,
)
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.reading_properties import GETRECORDS_RETRIES

from fakes.spark.simulated_kinesis import MemoryClaims, SimulatedKinesis

BATCH = BatchId("query", 1, "plan")


@pytest.fixture
def kinesis() -> SimulatedKinesis:
    made = SimulatedKinesis()
    made.add("a", [1, 2, 3])
    return made


def plan(kinesis: SimulatedKinesis, publisher: str = "POLLING") -> TaskPlan:
    state = ShardState(StartingPosition.trim_horizon())
    entries = tuple(ShardOffset(each.shard, state) for each in kinesis.shards.values())
    return TaskPlan(BATCH, 0, entries, Bounds(), publisher, "POLLING", "token", {})


def sequences(task: TaskRead) -> list[str]:
    return [number for batch in task.rows() for number in batch.column("sequenceNumber").to_pylist()]


def test_the_claim_is_stored_before_the_first_row_is_returned(kinesis):
    store = MemoryClaims(markers={("query", "token")})
    rows = TaskRead(plan(kinesis), store, kinesis.read, kinesis.clock).rows()
    stored = store.get(BATCH, "group-00000", "token")
    claim = ReadClaim.from_bytes(stored).shards["s/a"]
    assert (claim.records, claim.first, claim.last, claim.seen.at_tip) == (3, ("1", -1), ("3", -1), True)
    assert sum(batch.num_rows for batch in rows) == 3


def test_a_task_logs_how_many_records_of_which_shards_it_left_out(kinesis, caplog):
    kinesis.add("b", [4])
    kinesis.skipped = {"s/a": 1_200}
    sequences(TaskRead(plan(kinesis), MemoryClaims(markers={("query", "token")}), kinesis.read, kinesis.clock))

    (line,) = [each for each in caplog.records if "left out" in each.message]
    assert line.levelname == "WARNING"
    assert line.message == (
        "task 0 of batch 1 left out 1,200 records that could not be used (flink.deserializer.error=SKIP): s/a 1,200"
    )


def test_a_bad_record_fails_the_task_before_its_claim_so_that_the_query_may_go_on_with_another_policy(kinesis):
    class Misfits(RowColumns):
        def batch(self, batches, joined):
            raise DeserializationError("s", "a", "2", "it does not fit")

    store = MemoryClaims(markers={("query", "token")})
    with pytest.raises(DeserializationError, match="it does not fit"):
        TaskRead(plan(kinesis), store, kinesis.read, kinesis.clock, columns=Misfits()).rows()
    assert store.get(BATCH, "group-00000", "token") is None


def test_a_stream_that_is_deleted_during_the_read_is_named_and_nothing_is_claimed(kinesis):
    kinesis.add("b", [1])
    store = MemoryClaims(markers={("query", "token")})

    def deleted(starts, bounds, sink, publisher, **more):
        result = kinesis.read(starts, bounds, sink, publisher)
        return BoundedResult(result.reason, {key: each for key, each in result.shards.items() if key != "s/b"})

    with pytest.raises(StreamNotFoundError, match="stream 's' does not exist"):
        TaskRead(plan(kinesis), store, deleted, kinesis.clock).rows()
    assert store.get(BATCH, "group-00000", "token") is None


def test_the_loser_of_a_race_returns_the_winners_rows(kinesis):
    store = MemoryClaims(markers={("query", "token")})

    def read_and_be_late(*arguments, **more):
        result = kinesis.read(*arguments)
        if store.get(BATCH, "group-00000", "token") is None:
            assert sequences(TaskRead(plan(kinesis), store, kinesis.read, kinesis.clock)) == ["1", "2", "3"]
            kinesis.shards["s/a"].times.append(4)
        return result

    slow = TaskRead(
        replace(plan(kinesis), bounds=Bounds(shard_limits={"s/a": 2})), store, read_and_be_late, kinesis.clock
    )
    assert sequences(slow) == ["1", "2", "3"]


def test_a_replay_has_the_rows_of_each_shard_in_the_same_order(kinesis):
    kinesis.add("b", [1, 2])
    store = MemoryClaims(markers={("query", "token")})

    def in_turns(starts, bounds, sink, publisher, **more):
        """The first read gets the shards in another order than the replay."""
        order = sorted(starts, key=lambda shard: shard.key, reverse=more.get("is_replay", False))
        return kinesis.read({shard: starts[shard] for shard in order}, bounds, sink, publisher)

    def rows():
        read = TaskRead(plan(kinesis), store, in_turns, kinesis.clock).rows()
        return [row for batch in read for row in batch.select(["shardId", "sequenceNumber"]).to_pylist()]

    first, again = rows(), rows()
    assert first != again
    assert sorted(first, key=lambda row: row["shardId"]) == sorted(again, key=lambda row: row["shardId"])


def test_a_replay_that_finds_other_records_fails(kinesis):
    store = MemoryClaims(markers={("query", "token")})
    assert sequences(TaskRead(plan(kinesis), store, kinesis.read, kinesis.clock)) == ["1", "2", "3"]
    del kinesis.shards["s/a"].times[1:]
    with pytest.raises(
        DataLossError, match=r"3 records from .* were read by an earlier attempt, but reading them again gave 1"
    ):
        TaskRead(plan(kinesis), store, kinesis.read, kinesis.clock).rows()


def test_s5_with_continue_a_replay_returns_the_claimed_records_that_are_left(kinesis, caplog):
    store = MemoryClaims(markers={("query", "token")})
    assert sequences(TaskRead(plan(kinesis), store, kinesis.read, kinesis.clock)) == ["1", "2", "3"]
    kinesis.shards["s/a"].times += [4, 5]

    def expired(starts, bounds, sink, publisher, **more):
        later = {shard: replace(state, position=SequenceNumber("1")) for shard, state in starts.items()}
        return kinesis.read(later, bounds, sink, publisher)

    assert sequences(TaskRead(replace(plan(kinesis), accepts_loss=True), store, expired, kinesis.clock)) == ["2", "3"]
    assert "the task continues because flink.state.dataloss=CONTINUE, with 2 of the claimed records" in caplog.text
    assert "Set flink.state.dataloss" not in caplog.text  # it is set


def two_claimed(kinesis) -> MemoryClaims:
    """The claim of four records in two shards."""
    kinesis.add("b", [1])
    store = MemoryClaims(markers={("query", "token")})
    assert len(sequences(TaskRead(plan(kinesis), store, kinesis.read, kinesis.clock))) == 4
    return store


def test_s5_with_continue_a_replay_without_a_lost_shard_returns_the_others(kinesis):
    store = two_claimed(kinesis)

    def gone(starts, bounds, sink, publisher, **more):
        """The other shard was read in part when the lost one is noticed."""
        kept = {shard: state for shard, state in starts.items() if shard.key != "s/b"}
        if len(kept) < len(starts):
            kinesis.read(kept, replace(bounds, shard_limits={"s/a": 1}), sink, publisher)
            raise DataLossError("shard s/b vanished")
        return kinesis.read(starts, bounds, sink, publisher)

    with pytest.raises(DataLossError, match="vanished"):
        TaskRead(plan(kinesis), store, gone, kinesis.clock).rows()
    task = TaskRead(replace(plan(kinesis), accepts_loss=True), store, gone, kinesis.clock)
    assert sequences(task) == ["1", "2", "3"]


def slowly(kinesis, found, seconds=400):
    """A replay whose windows take so long and read so many records of `s/a`; a window without any is not at the tip."""
    numbers = iter(found)

    def read(starts, bounds, sink, publisher, **more):
        kinesis.clock.sleep(seconds)
        taken = next(numbers, 0)
        if taken:
            result = kinesis.read(starts, replace(bounds, shard_limits={"s/a": taken}), sink, publisher)
        else:
            outcomes = {shard.key: ShardOutcome(shard, state) for shard, state in starts.items()}
            return BoundedResult(EndReason.MAX_TIME, outcomes)
        return replace(result, reason=EndReason.MAX_TIME)

    return read


@pytest.mark.parametrize("accepts_loss", [False, True])
def test_a_replay_that_is_not_through_is_no_data_loss(kinesis, accepts_loss):
    """Rows that are still in the stream would not come again."""
    store = MemoryClaims(markers={("query", "token")})
    assert sequences(TaskRead(plan(kinesis), store, kinesis.read, kinesis.clock)) == ["1", "2", "3"]
    slow = TaskRead(replace(plan(kinesis), accepts_loss=accepts_loss), store, slowly(kinesis, [1]), kinesis.clock)
    with pytest.raises(
        RetriesExhaustedError,
        match=r"task 0 of batch 1 .* Not found yet: 2 of s/a. They may still be in the stream",
    ):
        slow.rows()


def test_a_replay_takes_as_long_as_it_finds_records(kinesis):
    store = MemoryClaims(markers={("query", "token")})
    assert sequences(TaskRead(plan(kinesis), store, kinesis.read, kinesis.clock)) == ["1", "2", "3"]
    slow = slowly(kinesis, [1, 0, 1, 0, 1])
    assert sequences(TaskRead(plan(kinesis), store, slow, kinesis.clock)) == ["1", "2", "3"]


def test_s5_a_shard_that_lost_records_does_not_end_the_replay_of_a_slow_one(kinesis):
    store = two_claimed(kinesis)
    kinesis.shards["s/b"].times.clear()
    slow = slowly(kinesis, [1, 0, 1, 0, 1])
    task = TaskRead(replace(plan(kinesis), accepts_loss=True), store, slow, kinesis.clock)
    assert sequences(task) == ["1", "2", "3"]


def test_an_empty_claim_is_replayed_without_a_read(kinesis):
    kinesis.shards["s/a"].times.clear()
    store = MemoryClaims(markers={("query", "token")})
    for _ in range(2):
        assert sequences(TaskRead(plan(kinesis), store, kinesis.read, kinesis.clock)) == []
    assert len(kinesis.reads) == 1


def test_f9_a_second_first_read_polls_although_nothing_is_claimed_yet(kinesis):
    store = MemoryClaims(markers={("query", "token")})

    def killed(*arguments):
        kinesis.read(*arguments)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        TaskRead(plan(kinesis, "EFO"), store, killed, kinesis.clock).rows()
    bounds = []

    def read(starts, within, *more):
        bounds.append(within)
        return kinesis.read(starts, within, *more)

    kinesis.clock.sleep(1)
    again_ms = kinesis.clock.now_ms()
    assert sequences(TaskRead(plan(kinesis, "EFO"), store, read, kinesis.clock)) == ["1", "2", "3"]
    assert [publisher for publisher, _ in kinesis.reads] == ["EFO", "POLLING"]
    assert bounds[0].stop_at_tip, "the second read waits for the end of a window although it polls"
    claim = ReadClaim.from_bytes(store.get(BATCH, "group-00000", "token"))
    assert (claim.subscribed, claim.began_ms) == (True, again_ms), "the next batch may subscribe too soon"


def test_a_claim_of_the_previous_version_is_refused_with_advice(kinesis):
    store = MemoryClaims(markers={("query", "token")})
    store.put_if_absent(BATCH, "group-00000", b'{"v": 2, "shards": {}, "subscribed": false}')
    with pytest.raises(
        StateError, match=r"claim .* of version 2, and this release reads version 3 only: .* a new checkpointLocation"
    ):
        TaskRead(plan(kinesis), store, kinesis.read, kinesis.clock).rows()


def test_a_task_with_another_store_than_the_driver_is_an_error(kinesis, tmp_path):
    store = read_claim_store_of(str(tmp_path), Properties(), run_without_loop)
    with pytest.raises(ConfigurationError, match="metadataLocation"):
        TaskRead(plan(kinesis), store, kinesis.read, kinesis.clock).rows()
    assert kinesis.reads == []


class Failing(MemoryClaims):
    """Each of its calls fails `times` times before it succeeds."""

    def __init__(self, failure: Exception, times: int) -> None:
        self.error, self.times, self.left = failure, 0, 0
        super().__init__(markers={("query", "token")})
        self.times = self.left = times

    def _run_unless_away(self, work):
        self.failure = self.error if self.left else None
        self.left = self.left - 1 if self.left else self.times
        return super()._run_unless_away(work)


def test_a_task_waits_for_its_store_and_returns_no_row_without_a_claim(kinesis):
    store = Failing(StoreUnavailableError("PutItem failed"), 3)
    task = TaskRead(plan(kinesis), store, kinesis.read, kinesis.clock, kinesis.clock.sleep)
    assert sequences(task) == ["1", "2", "3"]
    store.left = 0
    assert ReadClaim.from_bytes(store.get(BATCH, "group-00000", "token")).shards["s/a"].records == 3
    assert len(kinesis.reads) == 1


def test_a_task_whose_store_is_away_for_too_long_fails_and_names_it(kinesis):
    store = Failing(StoreUnavailableError("PutItem at dynamodb://t/j failed"), 10**9)
    with pytest.raises(
        OutageError, match=r"^calls to the store of claims have failed since .*maxOutage \(900 s\): PutItem at dynamodb"
    ):
        TaskRead(plan(kinesis), store, kinesis.read, kinesis.clock, kinesis.clock.sleep).rows()
    assert kinesis.reads == []


def test_a_task_that_may_not_use_its_store_fails_at_once(kinesis):
    store = Failing(StateError("PutItem failed with AccessDeniedException"), 1)
    with pytest.raises(StateError, match="AccessDenied"):
        TaskRead(plan(kinesis), store, kinesis.read, kinesis.clock, kinesis.clock.sleep).rows()


def test_a_task_that_cannot_read_ends_with_a_claim_that_says_so(kinesis):
    store = MemoryClaims(markers={("query", "token")})
    kinesis.failure = TransientError("GetRecords", "ConnectionError", "refused")
    assert sequences(TaskRead(plan(kinesis), store, kinesis.read, kinesis.clock)) == []
    claim = ReadClaim.from_bytes(store.get(BATCH, "group-00000", "token")).shards["s/a"]
    assert (claim.end, claim.seen.failure) == (claim.start, "GetRecords failed with ConnectionError: refused")


def test_a_replay_that_cannot_read_is_an_outage_and_no_data_loss(kinesis):
    store = MemoryClaims(markers={("query", "token")})
    assert sequences(TaskRead(plan(kinesis), store, kinesis.read, kinesis.clock)) == ["1", "2", "3"]
    kinesis.failure = TransientError("GetRecords", "ConnectionError", "refused")
    with pytest.raises(OutageError, match=r"^calls to Kinesis have failed since .*: s/a: GetRecords failed"):
        TaskRead(plan(kinesis), store, kinesis.read, kinesis.clock).rows()


def test_a_replay_warns_of_an_outage_and_goes_on_where_it_was(kinesis, caplog):
    kinesis.add("b", [4, 5])
    store = MemoryClaims(markers={("query", "token")})
    first = sequences(TaskRead(plan(kinesis), store, kinesis.read, kinesis.clock))
    away = iter([("s/a", "s/b"), ("s/b",), ("s/b",)])
    healthy, starts = kinesis.read, []

    def read(states, bounds, sink, publisher, **more):
        starts.append(sorted(shard.key for shard in states))
        failing = next(away, ())
        result = healthy(
            {shard: states[shard] for shard in states if shard.key not in failing}, bounds, sink, publisher
        )
        refused = {
            shard.key: ShardOutcome(shard, state, seen=ShardObservation(failure="GetRecords: ConnectionError: refused"))
            for shard, state in states.items()
            if shard.key in failing
        }
        kinesis.clock.sleep(bounds.max_time if refused else 0)
        reason = EndReason.MAX_TIME if refused else EndReason.TIP
        return replace(result, reason=reason, shards={**result.shards, **refused})

    assert sequences(TaskRead(plan(kinesis), store, read, kinesis.clock)) == first
    assert starts == [["s/a", "s/b"], ["s/a", "s/b"], ["s/b"], ["s/b"]]
    assert caplog.text.count("calls to Kinesis have failed since") == 1
    assert "calls to Kinesis succeed again after" in caplog.text


def test_a_first_read_tries_failed_calls_again_until_its_window_ends():
    properties = with_endless_retries(Properties({"flink.shard.getrecords.maxretries": "3"}))
    assert GETRECORDS_RETRIES.policy(properties).max_retries > 10**6


def test_a_task_builds_only_the_chosen_columns_and_claims_and_replays_as_with_all(kinesis):
    store, schema = MemoryClaims(markers={("query", "token")}), pa.schema([RECORD_SCHEMA.field("data")])
    columns = RowColumns(schema)
    for accepts_loss in (False, False, True):  # the first read, and two replays
        planned = replace(plan(kinesis), accepts_loss=accepts_loss)
        (rows,) = TaskRead(planned, store, kinesis.read, kinesis.clock, columns=columns).rows()
        assert (rows.schema, rows.num_rows) == (schema, 3)
    kinesis.shards["s/a"].times[:] = []
    assert list(TaskRead(planned, store, kinesis.read, kinesis.clock, columns=columns).rows()) == []
