"""FanOutRecordPublisher on virtual time: batches, positions, ends of subscriptions and shards (P1, P4, F2, F6, F9)."""

import pytest

from recordpublisher.publishers.base import RunResult
from recordpublisher.publishers.positions import PositionType, SequenceNumber, StartingPosition
from recordpublisher.publishers.shards import Shard
from recordpublisher.testing.virtual_time import run_virtual

from fakes.fanout_harness import FanOutHarness
from fakes.fanout_service import SHARD, Pause, event, network, shard_end

END = (shard_end(),)


def after(sequence):
    return StartingPosition(PositionType.AFTER_SEQUENCE_NUMBER, str(sequence))


# --- events become batches ----------------------------------------------------------------------------------------------------------


def test_an_event_becomes_one_batch_with_the_position_after_the_last_record():
    harness = FanOutHarness((event(1, 2, 3, behind=123), shard_end()))
    assert harness.read_all() is RunResult.COMPLETE
    first = harness.batches[0]
    assert first.sequence_numbers == ["1", "2", "3"]
    assert first.read_position == SequenceNumber("3")
    assert (first.millis_behind_latest, first.raw_count, first.raw_bytes) == (123, 3, 12)


def test_f6_an_empty_event_moves_the_position_to_its_continuation():
    harness = FanOutHarness((event(continuation=70),), END)
    harness.read_all()
    assert harness.batches[0].read_position == SequenceNumber("70", continuation=True)
    assert harness.ports.positions == [StartingPosition.trim_horizon(), after(70)]


def test_records_arrive_once_and_in_order_over_many_subscriptions():
    subscriptions = [(event(n, n + 1), event(n + 2)) for n in range(0, 120, 3)]
    harness = FanOutHarness(*subscriptions, END)
    harness.read_all()
    assert harness.sequences == [str(n) for n in range(120)]
    assert len(harness.ports.calls) == 41


def test_a1_metrics_count_reads_records_bytes_and_subscriptions():
    harness = FanOutHarness((event(1, 2, behind=50),), (event(3, behind=7), shard_end()))
    harness.read_all()
    metrics = harness.metrics
    assert (metrics.reads, metrics.number_of_aggregated_records, metrics.number_of_deaggregated_records) == (3, 3, 3)
    assert (metrics.bytes_read, metrics.bytes_per_read) == (12, 0)
    assert (metrics.resubscribes, metrics.subscribed, metrics.retries) == (1, 0, 0)


def test_a1_subscribed_is_one_exactly_while_a_subscription_is_open():
    seen = []
    harness = FanOutHarness((lambda: seen.append(harness.metrics.subscribed), event(1)), END)
    harness.read_all()
    assert (seen, harness.metrics.subscribed) == ([1], 0)


# --- the next position (P1, P2, P4) -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "position",
    [
        StartingPosition.trim_horizon(),
        StartingPosition.latest(),
        StartingPosition.at_timestamp(1_600_000_000_000),
        StartingPosition(PositionType.AT_SEQUENCE_NUMBER, "5"),
        after(5),
    ],
)
def test_p1_the_first_subscription_starts_at_the_given_position(position):
    harness = FanOutHarness(END)
    harness.read_all(position)
    assert harness.ports.positions == [position]


def test_p1_the_next_subscription_starts_after_the_returned_position():
    harness = FanOutHarness((event(1, 2, continuation=999),), END)
    harness.read_all()
    assert harness.ports.positions[1] == after(2)


def test_p1_the_half_of_a_batch_that_the_consumer_did_not_take_is_read_again():
    harness = FanOutHarness((event(1, 2, 3), event(4)), (event(2, 3), shard_end()))

    async def half(batch):
        await harness.take(batch)
        return SequenceNumber("1") if len(harness.batches) == 1 else batch.read_position

    harness.read_all(consumer=half)
    assert harness.sequences == ["1", "2", "3", "2", "3"]
    assert harness.ports.positions[1] == after(1)


def test_p1_a_half_taken_last_batch_does_not_end_the_shard():
    harness = FanOutHarness((shard_end(1, 2),), (shard_end(2),))

    async def half(batch):
        await harness.take(batch)
        return SequenceNumber("1") if len(harness.batches) == 1 else batch.read_position

    assert harness.read_all(consumer=half) is RunResult.COMPLETE
    assert harness.sequences == ["1", "2", "2"]


def test_p4_a_timestamp_start_is_kept_while_none_is_returned():
    start = StartingPosition.at_timestamp(1_600_000_000_000)

    async def keeps_nothing(batch):
        return None

    harness = FanOutHarness((event(continuation=1), event(continuation=2)), (event(continuation=3),), END)
    harness.read_all(start, keeps_nothing)
    assert harness.ports.positions == [start, start, start]


# --- how a subscription ends (F2, F9) -----------------------------------------------------------------------------------------------


def test_f2_a_run_is_complete_after_the_last_batch_was_taken():
    children = (Shard("orders", "shardId-000000000001", (SHARD.shard_id,)),)
    harness = FanOutHarness((event(1), shard_end(2, children=children)))
    assert harness.read_all() is RunResult.COMPLETE
    assert harness.sequences == ["1", "2"]
    assert harness.batches[-1].child_shards == children
    assert harness.ports.opened[0].closed


def test_f2_a_complete_shard_stays_complete_without_another_call():
    harness = FanOutHarness(END)

    async def twice():
        publisher = await harness.publisher()
        return [await publisher.run(harness.take), await publisher.run(harness.take)]

    assert run_virtual(twice()) == [RunResult.COMPLETE, RunResult.COMPLETE]
    assert len(harness.ports.calls) == 1


def test_f2_a_clean_end_is_never_the_end_of_the_shard():
    harness = FanOutHarness((event(1),))

    async def once():
        return await (await harness.publisher()).run(harness.take)

    assert run_virtual(once()) is RunResult.INCOMPLETE


def test_f9_the_next_call_comes_five_seconds_after_the_last_success():
    harness = FanOutHarness((event(1),), (event(2),), END)
    harness.read_all()
    assert harness.ports.gaps == [5, 5]


def test_f9_after_five_minutes_the_next_call_comes_at_once():
    harness = FanOutHarness((event(1), *[Pause(5), event(continuation=2)] * 60), END)
    harness.read_all()
    assert harness.ports.gaps == [300]


def test_f9_failed_calls_are_a_second_apart_however_short_the_backoff():
    harness = FanOutHarness(network(), network(), END, draw=0.0)
    harness.read_all()
    assert harness.ports.gaps == [1, 1]


# A shard ends with an event without continuation, or with children (F2).


CHILD = Shard("orders", "shardId-000000000001", parents=("shardId-000000000000",))


def test_f2_children_end_the_shard_also_with_a_continuation():
    harness = FanOutHarness((event(1), event(2, children=(CHILD,))))

    assert harness.read_all() is RunResult.COMPLETE
    assert harness.sequences == ["1", "2"]
    assert harness.batches[-1].child_shards == (CHILD,)


def test_f2_no_continuation_ends_the_shard_also_without_children():
    harness = FanOutHarness((shard_end(1),))

    assert harness.read_all() is RunResult.COMPLETE
