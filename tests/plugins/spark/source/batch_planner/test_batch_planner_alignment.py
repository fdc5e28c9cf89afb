"""Event-time alignment through the offsets, without Spark (W1-W8)."""

from __future__ import annotations

import pytest

from recordpublisher.plugins.spark.source.offset import EMIT_NOTHING, BatchOffset

from fakes.spark.queries import IDLE, LOOKAHEAD, query, spread
from fakes.spark.simulated_kinesis import SimulatedKinesis


@pytest.fixture
def kinesis() -> SimulatedKinesis:
    return SimulatedKinesis()


def test_w8_the_first_batches_respect_the_lookahead_too(kinesis, tmp_path):
    kinesis.add("early", list(range(0, 60_000, 1000)))
    kinesis.add("late", list(range(30_000, 60_000, 500)))
    job = query(kinesis, tmp_path, **{LOOKAHEAD: 5000})
    job.run()
    assert sorted(job.delivered()) == sorted(job.expected())
    assert spread(job) <= 5000
    assert BatchOffset.from_json(job.log[1]).emit_limit == EMIT_NOTHING


def test_w1_a_held_record_lets_the_global_watermark_jump_over_a_gap(kinesis, tmp_path):
    kinesis.add("a", [0, 1_000_000])
    kinesis.add("b", [1, 1_000_001])
    job = query(kinesis, tmp_path, **{LOOKAHEAD: 10})
    job.run(12)
    assert sorted(job.delivered()) == sorted(job.expected())


def test_w2_without_an_idle_interval_a_silent_shard_holds_the_others(kinesis, tmp_path):
    kinesis.add("a", list(range(0, 100_000, 1000)))
    kinesis.add("silent", [])
    job = query(kinesis, tmp_path, **{LOOKAHEAD: 5000})
    job.run(50)
    assert job.delivered() == []


def test_w3_a_shard_is_idle_after_the_interval_of_evidence_and_w4_active_with_its_first_record(kinesis, tmp_path):
    kinesis.add("a", list(range(0, 100_000, 1000)))
    kinesis.add("silent", [])
    job = query(kinesis, tmp_path, **{LOOKAHEAD: 5000, IDLE: 3000})
    job.run(quiet_plans=80)
    assert job.last.shards["s/silent"].idle
    assert len(job.delivered()) == 100
    kinesis.shards["s/silent"].times.append(200_000)
    kinesis.clock.ms += 1000
    job.batch()
    job.run(2)
    assert not job.last.shards["s/silent"].idle


def test_w5_a_child_inherits_its_parents_watermark_and_does_not_lower_the_global_one(kinesis, tmp_path):
    kinesis.add("parent", [50_000])
    child = kinesis.add("child", [51_000], ("parent",))
    kinesis.close("parent", child)
    kinesis.add("other", list(range(49_000, 60_000, 100)))
    job = query(kinesis, tmp_path, **{LOOKAHEAD: 2000})
    job.run(40)
    values = [BatchOffset.from_json(entry).global_watermark for entry in job.log]
    known = [value for value in values if value is not None]
    assert known == sorted(known)
    # an open child that is at its tip holds the others on purpose (W2): everything up to its watermark + lookahead was emitted
    assert max(row[2] for rows in job.rows.values() for row in rows) == 53_000


def test_held_shards_are_counted_and_not_read(kinesis, tmp_path):
    kinesis.add("ahead", [100_000, 100_001])
    kinesis.add("behind", list(range(0, 50_000, 1000)))
    job = query(kinesis, tmp_path, **{LOOKAHEAD: 1000})
    job.run(10)
    held = job.last.shards["s/ahead"]
    assert held.held.batches >= 5
    assert held.held.ms > 0
    assert kinesis.reads[-1][1] == ["s/behind"]
