"""W8, W9a, W10, S2: whole fetchers with a remote coordinator, on virtual time."""

import asyncio

import msgspec
import pytest

from recordpublisher.fetcher.coordination.coordinator import Coordinator
from recordpublisher.fetcher.coordination.heartbeat_messages import HeartbeatRequest
from recordpublisher.fetcher.coordination.remote_tracker import RemoteTracker
from recordpublisher.fetcher.pipeline.bounds import Bounds
from recordpublisher.publishers.errors import DeserializationError
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from fakes.scripted_source import RecordingSink, ScriptedSource, make_fetcher

ALIGNED = {"flink.watermark.lookahead.millis": 1_000, "flink.watermark.sync.interval": 1_000}


class Network:
    """A coordinator; every message takes `delay` virtual seconds. None: nothing arrives."""

    def __init__(self, delay=0.02):
        self.coordinator, self.delay, self.requests, self.trackers = Coordinator(1), delay, 0, {}

    def carry(self, deliver, *arguments):
        if self.delay is not None:
            asyncio.get_running_loop().call_later(self.delay, deliver, *arguments)

    def handle(self, tracker, request):
        self.requests += 1
        request = msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=HeartbeatRequest)
        self.carry(
            tracker.handle_response, self.coordinator.handle_heartbeat(request, VirtualClock().monotonic() * 1000)
        )
        for subtask, response in self.coordinator.take_notifications():
            self.carry(self.trackers[subtask].handle_response, response)

    def tracker(self, properties):
        network = self

        class NetworkTracker(RemoteTracker):
            async def open(self, subtask, parallelism):
                await super().open(subtask, parallelism)
                network.trackers[subtask] = self

            def send(self, request):
                network.carry(network.handle, self, request)

        return NetworkTracker(Properties(properties), VirtualClock())


class OrderedSink(RecordingSink):
    """Keeps what every subtask wrote in one list."""

    def __init__(self, order):
        super().__init__()
        self._order = order

    async def write(self, batch):
        self._order.extend((batch.shard_id, int(data)) for data in batch.data)


async def run_all(source, network, properties, owner, bounds=None, parallelism=2, late=0.0):
    """Run every subtask, by default until the tip; returns what was written, in order, and how long it took."""
    order = []

    async def subtask(number):
        await asyncio.sleep(late * number)
        fetcher = make_fetcher(
            source,
            OrderedSink(order),
            properties,
            tracker=network.tracker(properties),
            subtask=number,
            parallelism=parallelism,
            assigner=lambda shard, n: owner[shard.shard_id],
        )
        await fetcher.open()
        await fetcher.run_bounded(bounds or Bounds(stop_at_tip=True, max_time=10_000))
        await fetcher.close()

    await asyncio.gather(*map(subtask, range(parallelism)))
    return order, asyncio.get_running_loop().time()


def spread_of(order):
    worst, lowest_left = 0, float("inf")
    for _, each in reversed(order):
        lowest_left = min(lowest_left, each)
        worst = max(worst, each - lowest_left)
    return worst


def two_shards(**more):
    source = ScriptedSource(per_read=50, **more)
    source.add("a", *range(0, 60_000, 20))
    source.add("b", *range(0, 60_000, 2_000))
    return source


@pytest.mark.slow
@pytest.mark.parametrize(("lookahead", "delay"), [(0, 0.02), (1_000, 0.02), (1_000, 4.0)])
def test_subtasks_are_aligned_with_each_other_also_over_a_slow_network(lookahead, delay):  # W8, W10
    given = {**ALIGNED, "flink.watermark.lookahead.millis": lookahead}
    order, _ = run_virtual(run_all(two_shards(), Network(delay), given, {"a": 0, "b": 1}))

    assert len(order) == 3_030
    assert spread_of(order) <= lookahead


def test_a_subtask_that_starts_later_is_aligned_too():  # W6
    order, _ = run_virtual(run_all(two_shards(), Network(), ALIGNED, {"a": 0, "b": 1}, late=20))

    assert spread_of(order) <= 1_000


def test_catching_up_is_not_throttled_by_the_sync_interval():  # W9a
    given = {**ALIGNED, "flink.watermark.sync.interval": 60_000}
    network = Network()
    order, took = run_virtual(run_all(two_shards(), network, given, {"a": 0, "b": 1}))

    assert len(order) == 3_030
    assert took < 60, (
        "thirty steps of the sparse shard, each of which takes a round trip of 40 ms and not a sync interval"
    )
    assert network.requests < 200


def test_without_a_tracker_each_uses_its_own_watermark_after_the_start_up_timeout():  # W10
    order, took = run_virtual(run_all(two_shards(), Network(delay=None), ALIGNED, {"a": 0, "b": 1}))

    assert len(order) == 3_030
    assert took > 60


@pytest.mark.parametrize("suspended_at", [0.01, 1.0, 30.0])
def test_after_a_suspension_a_request_is_sent_before_the_own_watermark_is_used(suspended_at, caplog):  # W10
    source, network, order = two_shards(), Network(), []

    async def job():
        fetcher = make_fetcher(
            source, OrderedSink(order), ALIGNED, tracker=network.tracker(ALIGNED), subtask=0, parallelism=2
        )
        await fetcher.open()
        running = asyncio.create_task(fetcher.run_bounded(Bounds()))
        await asyncio.sleep(suspended_at)
        asyncio.get_running_loop().suspend(100)
        await asyncio.sleep(20)  # the other subtask has not joined, and its start-up timeout is not over
        fetcher.stop()
        await running

    run_virtual(job())

    assert order == []
    assert "is not aligned" not in caplog.text


def test_the_longest_lookahead_holds_no_subtask():  # C2, W8
    given = {**ALIGNED, "flink.watermark.lookahead.millis": 2**62}
    source = ScriptedSource(per_read=50)
    source.add("a", -1_000, 5)
    source.add("b", 5)
    order, took = run_virtual(run_all(source, Network(), given, {"a": 0, "b": 1}))

    assert len(order) == 3
    assert took < 60


@pytest.mark.parametrize("time", [-(2**63), -(2**62) - 1, 2**62 + 1, 2**63 - 1])
def test_an_event_time_too_large_for_the_tracker_is_a_bad_record_and_no_bad_message(time):  # W12, S7
    source = ScriptedSource(per_read=50)
    source.add("a", time)
    source.add("b", 5)

    with pytest.raises(DeserializationError, match="outside the years 1 to 9999"):
        run_virtual(run_all(source, Network(), ALIGNED, {"a": 0, "b": 1}))


def test_a_network_failure_holds_the_subtasks_until_it_ends():  # W10
    source, network = two_shards(), Network()

    async def job():
        loop = asyncio.get_running_loop()
        loop.call_later(5, setattr, network, "delay", None)
        loop.call_later(300, setattr, network, "delay", 0.02)
        return await run_all(source, network, ALIGNED, {"a": 0, "b": 1})

    order, took = run_virtual(job())

    assert len(order) == 3_030
    assert spread_of(order) <= 1_000
    assert took > 300


def test_a_tracker_that_answers_without_a_value_and_is_then_silent_is_waited_for():  # W2, W10
    source, network, order = two_shards(latency=1.0), Network(), []
    source.shards["s/b"].times.clear()  # an open shard that never had a record

    async def job():
        given = {**ALIGNED, "flink.shard.idle.interval": -1}
        owner = {"a": 0, "b": 1}
        fetchers = [
            make_fetcher(
                source,
                OrderedSink(order),
                given,
                tracker=network.tracker(given),
                subtask=number,
                parallelism=2,
                assigner=lambda shard, parallelism: owner[shard.shard_id],
            )
            for number in range(2)
        ]
        for fetcher in fetchers:
            await fetcher.open()
        running = [asyncio.create_task(fetcher.run_bounded(Bounds())) for fetcher in fetchers]
        await asyncio.sleep(900)
        network.delay = None
        await asyncio.sleep(100)
        written = len(order)
        network.delay = 0.02
        source.shards["s/b"].put(*range(0, 60_000, 2_000))
        await asyncio.sleep(60)
        for fetcher in fetchers:
            fetcher.stop()
        await asyncio.gather(*running)
        return written

    assert run_virtual(job()) == 0
    assert len(order) > 2_900
    assert spread_of(order) <= 1_000


def test_a_child_in_another_subtask_starts_after_its_parent_was_emitted():  # S2
    source = ScriptedSource(per_read=50)
    source.add("p", *range(0, 10_000, 100))
    source.split("p", "c", "d")
    for child in "cd":
        source.shards[f"s/{child}"].put(*range(10_000, 20_000, 100))
    owner = {"p": 0, "c": 0, "d": 1}
    order, _ = run_virtual(run_all(source, Network(), ALIGNED, owner, Bounds(max_time=60)))

    shards = [shard for shard, _ in order]
    assert len(order) == 300
    assert "p" not in shards[100:]


def test_a_parent_holds_the_watermark_until_its_child_in_another_subtask_is_started():  # W5, W13
    source, late = ScriptedSource(per_read=10), []
    source.add("a", *range(0, 1_000, 10))
    source.add("busy", *range(0, 1_000_000, 1_000))
    source.close_shard("a", source.add("child", *range(1_000, 100_000, 1_000), parents=("a",)).shard)
    network = Network()

    class LateRecordCheck(list):
        def extend(self, rows):
            value, rows = network.coordinator.global_watermark, list(rows)
            super().extend(rows)
            late.extend(time for name, time in rows if name == "child" and value is not None and time < value)

    async def job():
        order = LateRecordCheck()
        properties = {"flink.shard.discovery.intervalmillis": 2_000}
        owner = {"a": 0, "busy": 0, "child": 1}
        fetchers = [
            make_fetcher(
                source,
                OrderedSink(order),
                properties,
                tracker=network.tracker(properties),
                subtask=number,
                parallelism=2,
                assigner=lambda shard, _: owner[shard.shard_id],
            )
            for number in range(2)
        ]
        for fetcher in fetchers:
            await fetcher.open()
        await asyncio.gather(*(each.run_bounded(Bounds(max_time=60)) for each in fetchers))
        return order

    order = run_virtual(job())

    assert sum(name == "child" for name, _ in order) == 99
    assert late == []
