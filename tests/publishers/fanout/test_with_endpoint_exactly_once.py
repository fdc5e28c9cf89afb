"""Random schedules on a model of the service: every record is delivered exactly once and in order (P1, F2, F3, F6, F9)."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from recordpublisher.publishers.base import RunResult
from recordpublisher.publishers.positions import PositionType, SequenceNumber, StartingPosition
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from fakes.fanout_harness import FanOutHarness
from fakes.fanout_service import ScriptedPorts, ScriptedSubscription, event, in_use, network, throttled

RECORDS = 30
OUTCOMES = st.sampled_from(
    ["event", "event", "event", "empty", "clean end", "network", "throttled", "pause", "silence"]
)
TAKES = st.sampled_from(["all", "all", "all", "half", "slow", "stuck"])


class ModelShard(ScriptedPorts):
    """Holds records 1..RECORDS, serves from the requested position, and refuses calls that come too early."""

    def __init__(self, outcomes: list[str], sizes: list[int]) -> None:
        super().__init__()
        self._outcomes = iter(outcomes)
        self._sizes = iter(sizes)
        self._last_success = -1_000.0
        self.refused = 0

    async def subscribe_to_shard(self, consumer_arn, shard, position):
        now = VirtualClock().monotonic()
        if self.calls and now - self.calls[-1].at < 1 - 1e-6:
            self.refused += 1
        if now - self._last_success < 5 - 1e-6:
            self.refused += 1
            raise in_use()
        self._last_success = now
        self.script = [()]
        await super().subscribe_to_shard(consumer_arn, shard, position)
        return _Serving(self, self._start_of(position))

    def _start_of(self, position: StartingPosition) -> int:
        if position.type is PositionType.TRIM_HORIZON:
            return 1
        assert position.type is PositionType.AFTER_SEQUENCE_NUMBER
        return int(position.sequence_number) // 10 + 1

    def next_outcome(self) -> str:
        return next(self._outcomes, "event")

    def next_size(self) -> int:
        return next(self._sizes, 5)


class _Serving(ScriptedSubscription):
    """Sequence numbers are tens; a continuation lies between two of them."""

    def __init__(self, shard: ModelShard, start: int) -> None:
        super().__init__(())
        self._shard = shard
        self._next = start

    async def _play(self):
        while self._next <= RECORDS:
            match self._shard.next_outcome():
                case "event":
                    some = range(self._next, min(self._next + self._shard.next_size(), RECORDS + 1))
                    self._next = some.stop
                    yield event(*[number * 10 for number in some])
                case "empty":
                    yield event(continuation=self._next * 10 - 3)
                case "clean end":
                    return
                case "network":
                    raise network()
                case "throttled":
                    raise throttled()
                case "pause":
                    await asyncio.sleep(17)
                case "silence":
                    await asyncio.get_running_loop().create_future()
        yield event(continuation=None)


class PartialConsumer:
    """A consumer that takes all or half of a batch, at once or late. Owns the sequence numbers it has taken."""

    def __init__(self, takes: list[str]) -> None:
        self._takes = iter(takes)
        self.done: list[str] = []

    async def __call__(self, batch):
        take = next(self._takes, "all")
        await asyncio.sleep({"slow": 30, "stuck": 90}.get(take, 0))
        numbers = batch.sequence_numbers
        if take == "half" and len(numbers) > 1:
            numbers = numbers[: len(numbers) // 2]
            self.done += numbers
            return SequenceNumber(numbers[-1])
        self.done += numbers
        return batch.read_position


@settings(max_examples=150, deadline=None)
@given(st.lists(OUTCOMES, max_size=60), st.lists(st.integers(1, 8), max_size=40), st.lists(TAKES, max_size=40))
def test_every_record_is_delivered_once_and_in_order(outcomes, sizes, takes):
    harness = FanOutHarness(draw=0.5, **{"flink.shard.subscribetoshard.maxretries": 100})
    harness.ports = ModelShard(outcomes, sizes)
    consumer = PartialConsumer(takes)
    assert harness.read_all(consumer=consumer) is RunResult.COMPLETE
    assert consumer.done == [str(number * 10) for number in range(1, RECORDS + 1)]
    assert harness.ports.refused == 0


@settings(max_examples=100, deadline=None)
@given(st.lists(OUTCOMES, max_size=40), st.lists(TAKES, max_size=20), st.lists(st.floats(0.1, 200), max_size=8))
def test_cancelling_at_any_time_and_restarting_loses_and_repeats_nothing(outcomes, takes, stops):
    """The next publisher starts from the last returned position, as in a fetcher."""
    harness = FanOutHarness(draw=0.5, **{"flink.shard.subscribetoshard.maxretries": 100})
    harness.ports = ModelShard(outcomes, [])
    consumer = PartialConsumer(takes)

    async def read():
        for seconds in [*stops, 100_000]:
            start = StartingPosition.after(SequenceNumber(consumer.done[-1])) if consumer.done else None
            task = asyncio.create_task(harness.read(start, consumer))
            await asyncio.wait([task], timeout=seconds)
            if task.done():
                return task.result()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await asyncio.sleep(6)
        raise AssertionError("the shard was not read to its end")

    assert run_virtual(read()) is RunResult.COMPLETE
    assert consumer.done == [str(number * 10) for number in range(1, RECORDS + 1)]
