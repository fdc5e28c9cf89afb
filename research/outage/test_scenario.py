"""What is produced, and when."""

from collections import Counter

from outage.scenario import EVENTS_PER_SECOND, MINUTE_MS, PROPERTIES, Timeline, steady_events


def test_a_second_is_a_minute_of_event_time():
    events = list(steady_events(3, 1.0, 2.0, 1_000_000))

    assert len(events) == EVENTS_PER_SECOND
    assert events[0] == (1.0, 3, 1_000_000 + MINUTE_MS)


def test_one_shard_falls_silent_before_the_stop_and_the_other_begins_only_after_it():
    timeline = Timeline()
    events = list(timeline.events([0, 1], silent=2, late=3, base_ms=0))

    assert max(at for at, shard, _ in events if shard == 2) < timeline.silent_from < timeline.stopped_at
    assert min(at for at, shard, _ in events if shard == 3) >= timeline.late_from > timeline.continued_at
    assert Counter(shard for _, shard, _ in events)[0] == timeline.ends_at * EVENTS_PER_SECOND


def test_the_stop_is_longer_than_every_timeout():
    stopped_ms = (Timeline().continued_at - Timeline().stopped_at) * 1000

    assert stopped_ms > PROPERTIES["flink.shard.idle.interval"]
    assert stopped_ms > PROPERTIES["flink.lease.duration"]


def test_by_the_old_rule_the_late_shard_must_lie_beyond_the_lookahead():
    timeline = Timeline()
    ahead_ms = (timeline.late_from - timeline.stopped_at) * MINUTE_MS

    assert ahead_ms > PROPERTIES["flink.watermark.lookahead.millis"]
