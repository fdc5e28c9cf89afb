"""FanOutRecordPublisher while it waits: time-outs, back-pressure, stopping (F1, F5, R3)."""

import asyncio

import pytest

from recordpublisher.publishers.base import RunResult
from recordpublisher.publishers.errors import RetriesExhaustedError
from recordpublisher.publishers.positions import PositionType, StartingPosition
from recordpublisher.testing.virtual_time import VirtualLoop, run_virtual

from fakes.fanout_harness import FanOutHarness
from fakes.fanout_service import SILENCE, Pause, event, in_use, network, shard_end

END = (shard_end(),)


def after(sequence):
    return StartingPosition(PositionType.AFTER_SEQUENCE_NUMBER, str(sequence))


def test_f5_no_event_for_twenty_seconds_is_a_half_open_connection():
    harness = FanOutHarness((event(1), SILENCE), (event(2), shard_end()))
    harness.read_all()
    assert harness.ports.gaps == [20 + 1]  # the deadline and the backoff
    assert (harness.sequences, harness.metrics.retries) == (["1", "2"], 1)
    assert harness.ports.opened[0].closed


def test_f5_an_event_every_nineteen_seconds_is_within_the_time_out():
    harness = FanOutHarness((*[Pause(19), event(continuation=1)] * 5, shard_end()))
    harness.read_all()
    assert len(harness.ports.calls) == 1


def test_f5_after_a_suspension_events_are_read_before_the_time_out():
    def suspended():
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.call_later(5, loop.suspend, 600)

    harness = FanOutHarness((suspended, Pause(606), event(1), shard_end()))
    harness.read_all()
    assert (harness.sequences, len(harness.ports.calls)) == (["1"], 1)


def test_f5_the_deadline_does_not_run_while_the_consumer_works():
    async def slow(batch):
        await asyncio.sleep(50)
        return batch.read_position

    harness = FanOutHarness((event(1), Pause(15), event(2), shard_end()))
    harness.read_all(consumer=slow)
    assert len(harness.ports.calls) == 1


def test_f1_nothing_is_read_while_the_consumer_works():
    read = []

    async def slow(batch):
        await asyncio.sleep(30)
        read.append(harness.ports.opened[0].read)
        return batch.read_position

    harness = FanOutHarness((event(1), event(2), event(3), shard_end()))
    harness.read_all(consumer=slow)
    assert read == [1, 2, 3, 4]


def test_f5_an_unread_subscription_is_closed_after_a_minute_and_opened_again_later():
    closed = []

    async def very_slow(batch):
        await harness.take(batch)
        if len(harness.batches) == 1:
            await asyncio.sleep(59)
            closed.append(harness.ports.opened[0].closed)
            await asyncio.sleep(61)
            closed.append(harness.ports.opened[0].closed)
        return batch.read_position

    harness = FanOutHarness(
        (event(1), event(2)), (event(2), shard_end()), **{"flink.shard.subscribetoshard.maxretries": 0}
    )
    harness.read_all(consumer=very_slow)
    assert closed == [0, 1]
    assert (harness.sequences, harness.ports.positions[1]) == (["1", "2"], after(1))
    assert (harness.ports.gaps, harness.metrics.retries) == ([120], 0)


def test_f10_take_overs_are_not_in_a_row_if_an_unread_subscription_was_closed_between_them():
    async def very_slow_once(batch):
        await harness.take(batch)
        await asyncio.sleep(120 if batch.sequence_numbers == ["9"] else 0)
        return batch.read_position

    taken_over = [(event(number), in_use()) for number in range(1, 9)]
    harness = FanOutHarness(*taken_over[:4], (event(9),), *taken_over[4:8], END)
    assert harness.read_all(consumer=very_slow_once) is RunResult.COMPLETE
    assert harness.metrics.subscriptions_taken_over == 8


def test_f5_an_error_after_back_pressure_is_not_counted():
    async def slow(batch):
        await asyncio.sleep(30)
        return batch.read_position

    harness = FanOutHarness((event(1), network()), END, **{"flink.shard.subscribetoshard.maxretries": 0})
    assert harness.read_all(consumer=slow) is RunResult.COMPLETE


def test_the_last_batch_of_a_shard_may_take_longer_than_the_unread_time_out():
    async def slow(batch):
        await asyncio.sleep(300)
        return batch.read_position

    harness = FanOutHarness((shard_end(1),))
    assert harness.read_all(consumer=slow) is RunResult.COMPLETE


def test_opening_a_subscription_has_a_deadline():
    harness = FanOutHarness(SILENCE, END)
    assert harness.read_all() is RunResult.COMPLETE
    assert harness.ports.gaps == [61]
    harness = FanOutHarness(SILENCE, **{"flink.shard.subscribetoshard.maxretries": 0})
    with pytest.raises(RetriesExhaustedError, match="Timed out acquiring subscription - orders/shardId-000000000000"):
        harness.read_all()


@pytest.mark.parametrize(
    ("script", "cancel_after"),
    [
        (SILENCE, 1),  # while subscribing
        ((SILENCE,), 1),  # while reading
        ((event(1), SILENCE), 10),  # while the consumer works
        (network(), 0.5),  # while backing off
    ],
    ids=["subscribing", "reading", "consuming", "backing off"],
)
def test_cancelling_is_clean_at_every_await(script, cancel_after):
    harness = FanOutHarness(script)

    async def slow(batch):
        await asyncio.sleep(1_000)

    async def read():
        publisher = await harness.publisher()
        while True:
            await publisher.run(slow)

    async def cancelled():
        task = asyncio.create_task(read())
        await asyncio.sleep(cancel_after)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_virtual(cancelled())
    assert all(subscription.closed for subscription in harness.ports.opened)
    assert harness.metrics.subscribed == 0


def test_cancelling_stops_between_two_batches_without_reading_more():
    harness = FanOutHarness(tuple(event(n) for n in range(128)))

    async def read():
        publisher = await harness.publisher()
        task = asyncio.current_task()
        assert task is not None

        async def eighth_is_enough(batch):
            await harness.take(batch)
            if len(harness.batches) == 8:
                task.cancel()
            await asyncio.sleep(0)
            return batch.read_position

        await publisher.run(eighth_is_enough)

    with pytest.raises(asyncio.CancelledError):
        run_virtual(read())
    assert (len(harness.batches), harness.ports.opened[0].read) == (8, 8)


def test_a_run_after_the_factory_closed_is_cancelled_without_a_call():
    harness = FanOutHarness()

    async def closed():
        publisher = await harness.publisher()
        await harness.made.close()
        return await publisher.run(harness.take)

    assert run_virtual(closed()) is RunResult.CANCELLED
    assert harness.ports.calls == []


def test_f7_no_event_of_a_replaced_subscription_is_read():
    """Events are read from the open subscription only. Further events of a closed one are never requested."""
    harness = FanOutHarness((event(1), SILENCE, event(66), network("late")), (event(2), shard_end()))
    harness.read_all()
    assert harness.sequences == ["1", "2"]
    assert harness.ports.opened[0].read == 1
