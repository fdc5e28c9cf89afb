"""A2: the lag of a shard as computed from one probe."""

from dataclasses import replace

import pytest

from recordpublisher.cli.commands.lag import shard_table
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.plugins.lag.probe import ShardProbe, has_old_unread, snapshot_of_lost_shard, snapshot_of_probe
from recordpublisher.publishers.polling.publisher import TipDistance
from recordpublisher.publishers.positions import SequenceNumber

from fakes.shard_entries import START, shard

NOW, MINUTE, DAY = 10_000_000, 60_000, 86_400_000
STATE = ShardState(START, SequenceNumber("17"), watermark=5, arrival_ms=NOW - 3 * MINUTE)


def seen(state=STATE, tip=TipDistance(False), recent=None, worker="w"):  # noqa: B008 - frozen
    return snapshot_of_probe(ShardProbe(shard(), state, tip, recent, worker=worker), NOW, 2 * MINUTE, DAY)


def test_the_age_of_the_oldest_unread_record_is_the_lag_and_says_when_it_is_lost():
    lag = seen(tip=TipDistance(True, NOW - 7 * MINUTE))

    assert (lag.unread, lag.lag_ms, lag.loss_ms) == (True, 7 * MINUTE, DAY - 7 * MINUTE)
    assert (lag.shard, lag.worker, lag.position, lag.watermark) == ("a", "w", "17", 5)


@pytest.mark.parametrize("age_ms", [-700, 0, 999, 1_000])
def test_a_shard_with_an_unread_record_has_a_lag(age_ms):
    """The time of the service is cut to whole seconds, so a new record may seem to come from the future."""
    assert seen(tip=TipDistance(True, NOW - age_ms)).lag_ms == 1_000
    assert shard_table([seen(tip=TipDistance(True, NOW - age_ms))], True).split("\n")[1].split()[2:4] == ["1.0", "s"]


def test_a_closed_shard_is_shown_as_closed():
    closed = snapshot_of_probe(ShardProbe(replace(shard(), closed=True), STATE, TipDistance(False)), NOW, MINUTE, DAY)

    assert (closed.is_closed, seen().is_closed) == (True, False)
    assert [line.split()[:2] for line in shard_table([closed, seen()], True).splitlines()[1:]] == [
        ["a", "(closed)"],
        ["a", "w"],
    ]


def test_at_the_tip_there_is_no_lag_and_idleness_counts_from_the_last_record():
    lag = seen()

    assert (lag.unread, lag.lag_ms, lag.loss_ms) == (False, 0, None)
    assert (lag.is_idle, lag.idle_ms) == (True, 3 * MINUTE)


@pytest.mark.parametrize(
    ("recent", "is_idle"), [(TipDistance(True, NOW), False), (TipDistance(False), True), (None, None)]
)
def test_with_unread_records_idleness_depends_on_recent_arrivals(recent, is_idle):
    lag = seen(tip=TipDistance(True, NOW), recent=recent)

    assert (lag.is_idle, lag.idle_ms) == (is_idle, None)


def test_without_a_stored_position_only_idleness_is_known():
    lag = seen(state=None, tip=None, recent=TipDistance(True, NOW), worker=None)

    assert (lag.unread, lag.lag_ms, lag.is_idle) == (None, None, False)


def test_a_tip_that_was_not_reached_is_unknown():
    lag = seen(tip=None)

    assert (lag.unread, lag.lag_ms) == (None, None)


@pytest.mark.parametrize(("age", "overdue"), [(2 * MINUTE - 1, False), (2 * MINUTE, True)])
def test_a_record_that_waited_for_the_interval_is_overdue(age, overdue):
    assert has_old_unread(seen(tip=TipDistance(True, NOW - age)), 2 * MINUTE) is overdue


def test_a_shard_deleted_before_it_was_read_is_an_alarm_at_once():  # S5
    lag = snapshot_of_lost_shard("s/a", STATE, "w")

    assert (lag.shard, lag.position, lag.worker) == ("a", "17", "w")
    assert "past retention and lost" in lag.alarm
