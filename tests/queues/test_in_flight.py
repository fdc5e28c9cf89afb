"""What a job holds of a queue: newest receipts, and duplicates of a bounded window."""

import asyncio
from types import SimpleNamespace

import pytest

from recordpublisher.publishers.errors import PluginError
from recordpublisher.publishers.records import UserRecord
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.user_code import notice_unawaited_calls
from recordpublisher.queues.in_flight import MAX_REMEMBERED, InFlight
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual


class Received(UserRecord):
    receipt: int = 0


class Queue:
    """What a job holds, and the settled receipts. `refuses`: the numbers that the queue cannot acknowledge."""

    def __init__(self, drops=False):
        self.acknowledged, self.released, self.refuses = [], [], set()
        self.metrics = ShardMetrics()
        source = SimpleNamespace(visibility_seconds=30.0, acknowledge=self._acknowledge, release=self._release)
        self.in_flight = InFlight(source, VirtualClock(), drops_duplicates=drops)

    async def _acknowledge(self, records):
        self.acknowledged += [(each.sequence_number, each.receipt) for each in records]
        return self.refuses

    async def _release(self, records):
        self.released += [(each.sequence_number, each.receipt) for each in records]

    def take(self, number, receipt=1):
        """Whether the record is passed on."""
        return bool(self.in_flight.take([Received(b"x", number, receipt=receipt)], self.metrics))

    async def settle(self):
        async with self.in_flight.settling(asyncio.ensure_future):
            pass


def on_queue(drops):
    def made(test):
        def run():
            async def opened():
                for each in drops:
                    await test(Queue(each), each)

            run_virtual(opened())

        return run

    return made


@on_queue([False])
async def test_of_a_duplicate_in_flight_the_newest_receipt_is_kept_and_the_record_is_not_passed_on(queue, drops):
    assert queue.take("a")
    assert not queue.take("a", 2)
    assert queue.metrics.duplicates == 1
    queue.in_flight.finish(["a"])
    await queue.settle()

    assert queue.acknowledged == [("a", 2)]


@on_queue([False, True])
async def test_a_duplicate_of_an_acknowledged_record_is_passed_on_unless_it_is_dropped(queue, drops):
    queue.take("a")
    queue.in_flight.finish(["a"])
    await queue.settle()

    assert queue.take("a", 2) == (not drops)
    await queue.settle()
    assert queue.acknowledged == [("a", 1), ("a", 2)] if drops else [("a", 1)]
    assert queue.metrics.duplicates == 1


@on_queue([False, True])
async def test_a_record_that_was_handled_but_not_acknowledged_is_never_passed_on_and_acknowledged_again(queue, drops):
    queue.refuses = {"a"}
    queue.take("a")
    queue.in_flight.finish(["a"])
    await queue.settle()
    assert queue.metrics.failed_acknowledgements == 1
    queue.refuses = set()

    assert not queue.take("a", 2)
    await queue.settle()
    assert queue.acknowledged == [("a", 1), ("a", 2)]


@on_queue([True])
async def test_a_record_that_comes_again_before_its_acknowledgement_is_acknowledged_by_its_newest_receipt(queue, drops):
    queue.take("a")
    queue.in_flight.finish(["a"])

    assert not queue.take("a", 2)
    await queue.settle()
    assert queue.acknowledged == [("a", 2)]


@on_queue([True])
async def test_what_was_given_up_is_released_and_no_duplicate(queue, drops):
    queue.take("a")
    queue.in_flight.give_up(["a"])
    await queue.settle()

    assert queue.released == [("a", 1)]
    assert queue.take("a", 2)
    assert queue.metrics.duplicates == 0


@on_queue([False])
async def test_a_record_that_comes_twice_in_a_receive_is_passed_on_once(queue, drops):
    twice = [Received(b"x", "a", receipt=receipt) for receipt in (1, 2)]

    assert len(queue.in_flight.take(twice, queue.metrics)) == 1
    queue.in_flight.finish(["a"])
    await queue.settle()
    assert queue.acknowledged == [("a", 2)]


@on_queue([True])
async def test_the_window_is_bounded(queue, drops):
    for number in range(MAX_REMEMBERED + 1):
        queue.take(str(number))
        queue.in_flight.finish([str(number)])
    await queue.settle()

    assert queue.take("0")
    assert not queue.take(str(MAX_REMEMBERED))


@on_queue([True])
async def test_of_what_was_handled_and_not_acknowledged_more_is_remembered(queue, drops):
    numbers = [str(number) for number in range(MAX_REMEMBERED + 1)]
    queue.refuses = set(numbers)
    for number in numbers:
        queue.take(number)
    queue.in_flight.finish(numbers)  # one commit
    await queue.settle()

    assert not any(queue.take(number, 2) for number in numbers)


def test_after_the_machine_has_slept_for_longer_than_the_visibility_nothing_is_held():
    clock = SimpleNamespace(monotonic=lambda: 100.0, boottime=lambda: 100.0 + slept)
    slept = 0

    async def held():
        in_flight = InFlight(SimpleNamespace(visibility_seconds=30.0), clock, drops_duplicates=False)
        in_flight.take([Received(b"x", "a")], ShardMetrics())
        nonlocal slept
        before, slept = in_flight.are_held(["a"]), 60
        return before, in_flight.are_held(["a"])

    assert run_virtual(held()) == (True, False)


@pytest.mark.filterwarnings("always:coroutine")
def test_an_acknowledgement_that_was_not_awaited_ends_the_job():
    notice_unawaited_calls()

    class Forgets:
        visibility_seconds = 30.0

        async def acknowledge(self, records):
            self.release(records)

        async def release(self, records):
            pass

    async def story():
        in_flight = InFlight(Forgets(), VirtualClock(), drops_duplicates=False)
        in_flight.take([Received(b"x", "a", receipt=1)], ShardMetrics())
        in_flight.finish(["a"])
        tasks = []

        def start(coroutine):
            tasks.append(asyncio.ensure_future(coroutine))
            return tasks[-1]

        async with in_flight.settling(start):
            pass
        await tasks[0]

    with pytest.raises(PluginError, match=r"`Forgets.acknowledge` has not awaited a call.*write `await`"):
        run_virtual(story())
