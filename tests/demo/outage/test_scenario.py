"""The script: who produces what, and when."""

from collections import Counter

from recordpublisher.demo.outage.scenario import MINUTE_MS, PER_SECOND, PROPERTIES, Script, steady


def test_a_second_is_a_minute_of_event_time():
    events = list(steady(3, 1.0, 2.0, 1_000_000))

    assert len(events) == PER_SECOND
    assert events[0] == (1.0, 3, 1_000_000 + MINUTE_MS)


def test_one_shard_falls_silent_before_the_stop_and_the_other_speaks_only_after_it():
    script = Script()
    events = list(script.events([0, 1], silent=2, late=3, base_ms=0))

    assert max(at for at, shard, _ in events if shard == 2) < script.silent_from < script.stopped_at
    assert min(at for at, shard, _ in events if shard == 3) >= script.spoken_from > script.continued_at
    assert Counter(shard for _, shard, _ in events)[0] == script.ends_at * PER_SECOND


def test_the_stop_is_longer_than_everybodys_patience():
    stopped_ms = (Script().continued_at - Script().stopped_at) * 1000

    assert stopped_ms > PROPERTIES["flink.shard.idle.interval"]
    assert stopped_ms > PROPERTIES["flink.watermark.tracker.timeout"]


def test_by_the_old_rule_the_late_shard_must_lie_beyond_the_lookahead():
    script = Script()
    ahead_ms = (script.spoken_from - script.stopped_at) * MINUTE_MS

    assert ahead_ms > PROPERTIES["flink.watermark.lookahead.millis"]
