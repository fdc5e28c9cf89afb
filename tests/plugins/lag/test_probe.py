"""The lag probe, on virtual time: an overdue shard is an alarm only when its stored position does not move (A2)."""

from dataclasses import replace

import pytest

from recordpublisher.fetcher.checkpoints.snapshot_format import snapshot_to_json
from recordpublisher.fetcher.settings import IdleIntervals
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.plugins.lag.probe import LagProbe
from recordpublisher.publishers.errors import StateError, ThrottledError
from recordpublisher.publishers.kinesis.ports import ReadResponse
from recordpublisher.publishers.positions import PositionType, SequenceNumber
from recordpublisher.publishers.records import UserRecord
from recordpublisher.publishers.retry import RetryPolicy
from recordpublisher.testing.virtual_time import EPOCH_MS, VirtualClock, run_virtual

from fakes.shard_entries import START, shard

HOUR, MINUTES_5 = 3_600_000, 300_000


class Service:
    """Shards as lists of records, numbered from 0 and written an hour before the start."""

    def __init__(self, **counts):
        self.shards = {name: shard(name) for name in counts}
        self.counts = counts
        self.refusals = 0

    async def list_shards(self, stream):
        return list(self.shards.values())

    async def server_time_ms(self, stream):
        return VirtualClock().now_ms()

    async def retention_ms(self, stream):
        return 24 * HOUR

    async def get_shard_iterator(self, shard, position):
        if position.type is PositionType.AT_TIMESTAMP:
            return f"{shard.shard_id} {self.counts[shard.shard_id]}"
        first = 0 if position.sequence_number is None else int(position.sequence_number) + 1
        return f"{shard.shard_id} {first}"

    async def get_records(self, shard, iterator, limit):
        if self.refusals:
            self.refusals -= 1
            raise ThrottledError("GetRecords", "ProvisionedThroughputExceededException", "slow down")
        name, first = iterator.split()
        left = range(int(first), self.counts[name])
        records = [UserRecord(b"x", str(number), (EPOCH_MS - HOUR) / 1000) for number in left[:limit]]
        return ReadResponse(records, 0 if len(left) <= limit else HOUR, "next")


class Store:
    """A job whose position in shard b moves by `speed` records with each load."""

    def __init__(self, speed):
        self.speed = speed
        self.at = 0

    async def load_or_beside_rows(self):
        self.at += self.speed
        states = {
            "s/a": ShardState(START, SequenceNumber("9"), watermark=100),
            "s/b": ShardState(START, SequenceNumber(str(self.at)), watermark=7),
        }
        return [{**snapshot_to_json(states, None, 1), "worker": "w3"}]


def probe(speed=0, **more):
    service = Service(a=10, b=50)
    given = LagProbe(
        service, service, "s", Store(speed), START, MINUTES_5, IdleIntervals(), RetryPolicy(3, 300, 1_000, 1.5)
    )
    return replace(given, **more)


def alarms(lag_probe, grace=30.0):
    return {lag.shard: lag.alarm for lag in run_virtual(lag_probe.read_with_alarms(grace))}


def test_a_position_that_does_not_move_behind_an_old_record_is_an_alarm_that_names_the_lowest_shard():
    reason = "worker w3 stores no progress; the lowest watermark of the job is that of s/b"

    assert alarms(probe()) == {"a": None, "b": reason}


def test_no_alarm_is_told_from_one_that_nobody_looked_for():
    def has_alarms(lags):
        return [lag.has_alarm for lag in lags]

    assert has_alarms(run_virtual(probe().read())) == [None, None]
    assert has_alarms(run_virtual(probe().read_with_alarms(30.0))) == [False, True]
    assert has_alarms(run_virtual(probe(alarm_interval_ms=2 * HOUR).read_with_alarms(30.0))) == [False, False]


def test_a_job_that_catches_up_raises_no_alarm():
    assert alarms(probe(speed=1)) == {"a": None, "b": None}


def test_a_record_younger_than_the_interval_raises_no_alarm_and_no_wait():
    async def timed():
        found = await probe(alarm_interval_ms=2 * HOUR).read_with_alarms(30.0)
        return [lag.alarm for lag in found], VirtualClock().monotonic()

    assert run_virtual(timed()) == ([None, None], 0.0)


def test_a_shard_without_stored_state_is_an_alarm():
    service = Service(a=10, b=1, c=5)

    assert alarms(probe(1, service=service, tips=service))["c"].startswith("no worker has stored a position")


def test_reading_the_lag_does_not_wait_and_raises_no_alarm():
    lags = run_virtual(probe().read())

    assert [(lag.shard, lag.unread, lag.lag_ms, lag.alarm) for lag in lags] == [
        ("a", False, 0, None),
        ("b", True, HOUR, None),
    ]


def test_without_a_store_only_recent_writes_are_known():
    lags = run_virtual(probe(store=None).read())

    assert [(lag.unread, lag.is_idle) for lag in lags] == [(None, True), (None, True)]


def test_an_empty_store_is_an_error_and_not_a_healthy_job():
    class Empty:
        place = "state"

        async def load_or_beside_rows(self):
            return []

    with pytest.raises(StateError, match="no positions are stored in state: are"):
        run_virtual(probe(store=Empty()).read())


def test_throttled_calls_are_retried():
    lag_probe = probe()
    lag_probe.tips.refusals = 2

    assert len(run_virtual(lag_probe.read())) == 2
