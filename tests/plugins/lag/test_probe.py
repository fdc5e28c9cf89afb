"""A2 from outside, on virtual time: a suspicion becomes an alarm only when the stored position does not move."""

from dataclasses import replace

import pytest

from recordpublisher.fetcher.checkpoints.snapshot import snapshot_to_json
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.plugins.lag.probe import Watcher
from recordpublisher.publishers.errors import StateError, ThrottledError
from recordpublisher.publishers.kinesis.ports import ReadResponse
from recordpublisher.publishers.positions import PositionType, SequenceNumber
from recordpublisher.publishers.records import UserRecord
from recordpublisher.publishers.retry import RetryPolicy
from recordpublisher.testing.virtual_time import EPOCH_MS, VirtualClock, run_virtual

from fakes.shard_entries import START, shard

HOUR = 3_600_000


class Service:
    """Shards as lists of records, numbered from 0 and written an hour before the beginning."""

    def __init__(self, **counts):
        self.shards = {name: shard(name) for name in counts}
        self.counts = counts
        self.refusals = 0

    async def list_shards(self, stream, after=None):
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

    async def load(self):
        self.at += self.speed
        states = {
            "s/a": ShardState(START, SequenceNumber("9"), watermark=100),
            "s/b": ShardState(START, SequenceNumber(str(self.at)), watermark=7),
        }
        return [snapshot_to_json(states, None, 1, 3, 4)]


def watcher(speed=0, **more):
    given = Watcher(Service(a=10, b=50), "s", Store(speed), START, 5 * 60_000, RetryPolicy(3, 300, 1_000, 1.5))
    return replace(given, **more)


def alarms(watch, patience=30.0):
    return {lag.shard: lag.alarm for lag in run_virtual(watch.look_for_alarms(patience))}


def test_a_position_that_does_not_move_behind_an_old_record_is_an_alarm_that_names_the_holder():
    words = "subtask 3 stores no progress; the lowest watermark of the job is that of s/b"

    assert alarms(watcher()) == {"a": None, "b": words}


def test_a_job_that_catches_up_is_none():
    assert alarms(watcher(speed=1)) == {"a": None, "b": None}


def test_a_record_that_has_not_waited_for_the_interval_is_none_and_costs_no_patience():
    async def timed():
        found = await watcher(interval_ms=2 * HOUR).look_for_alarms(30.0)
        return [lag.alarm for lag in found], VirtualClock().monotonic()

    assert run_virtual(timed()) == ([None, None], 0.0)


def test_a_shard_that_nobody_stored_is_an_alarm():
    service = Service(a=10, b=1, c=5)

    assert alarms(watcher(1, service=service))["c"].startswith("nobody has stored a position")


def test_a_plain_look_waits_for_nothing_and_raises_nothing():
    lags = run_virtual(watcher().look())

    assert [(lag.shard, lag.unread, lag.lag_ms, lag.alarm) for lag in lags] == [
        ("a", False, 0, None),
        ("b", True, HOUR, None),
    ]


def test_without_a_store_only_what_is_written_to_is_known():
    lags = run_virtual(watcher(store=None).look())

    assert [(lag.unread, lag.is_idle) for lag in lags] == [(None, True), (None, True)]


def test_an_empty_store_is_an_error_and_not_a_job_that_is_well():
    class Empty:
        async def load(self):
            return []

    with pytest.raises(StateError, match="nothing is stored there"):
        run_virtual(watcher(store=Empty()).look())


def test_throttling_is_waited_out():
    watch = watcher()
    watch.service.refusals = 2

    assert len(run_virtual(watch.look())) == 2
