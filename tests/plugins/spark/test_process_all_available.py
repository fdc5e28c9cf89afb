"""`processAllAvailable` returns when the planner says "nothing new": then every row that was put before the call is in the sink."""

from __future__ import annotations

import random

import pytest

from recordpublisher.plugins.spark.source.new_data_watch import LookResult
from recordpublisher.plugins.spark.source.patient_planner import ANSWER_SECONDS, NO_ANSWER_SECONDS

from fakes.spark.queries import FAN_OUT, query, two_shards
from fakes.spark.simulated_kinesis import ManualClock, SimulatedKinesis
from fakes.spark.simulated_query import SimulatedQuery


def put(kinesis: SimulatedKinesis, draw: random.Random) -> None:
    open_shards = [shard for shard in kinesis.shards.values() if not shard.closed]
    draw.choice(open_shards).times.append(7)


def split(kinesis: SimulatedKinesis, draw: random.Random, number: int) -> None:
    """Split a shard. Sometimes its end names no children, so that only a listing shows them."""
    parent = draw.choice([shard for shard in kinesis.shards.values() if not shard.closed]).shard
    children = [kinesis.add(f"{number}-{side}", [], (parent.shard_id,)) for side in "lr"]
    kinesis.close(parent.shard_id, *(children if draw.random() < 0.5 else ()))


def process_all_available(job: SimulatedQuery) -> None:
    """As Spark does: until a call plans nothing."""
    while True:
        before = job.kinesis.clock.ms
        had_batch = job.batch()
        assert job.kinesis.clock.ms - before <= 1000 * (ANSWER_SECONDS + 1)
        if not had_batch:
            return


@pytest.mark.parametrize(("publisher", "calls"), [({}, 100), (FAN_OUT, 20)], ids=["polling", "fan-out"])
def test_every_row_that_was_put_before_the_call_is_in_the_sink(tmp_path, publisher, calls):
    draw = random.Random(7)
    kinesis = two_shards()
    job = query(kinesis, tmp_path, **publisher)
    for number in range(calls):
        if draw.random() < 0.05 and len(kinesis.shards) < 40:
            split(kinesis, draw, number)
        for _ in range(draw.randrange(3)):
            put(kinesis, draw)
        process_all_available(job)
        assert len(job.delivered()) == len(job.expected())
    assert sorted(job.delivered()) == sorted(job.expected())


class RunningClock(ManualClock):
    """A clock that goes on by 0.07 ms with each look at it, so that two looks in one decision may show two milliseconds."""

    microseconds = 0

    def now_ms(self) -> int:
        self._go_on()
        return self.ms

    def monotonic(self) -> float:
        self._go_on()
        return self.ms / 1000 + self.microseconds / 1_000_000

    def _go_on(self) -> None:
        self.ms, self.microseconds = self.ms + (self.microseconds + 70) // 1000, (self.microseconds + 70) % 1000


def test_the_call_goes_on_after_a_batch_whose_end_is_seen_in_the_millisecond_in_which_the_next_is_planned(tmp_path):
    draw = random.Random(1)
    kinesis = two_shards()
    kinesis.clock = RunningClock()
    job = query(kinesis, tmp_path)
    for number in range(100):
        if number % 2:
            split(kinesis, draw, number)
        put(kinesis, draw)
        process_all_available(job)
        assert len(job.delivered()) == len(job.expected())


def test_a_row_that_is_put_while_the_call_looks_is_found_by_that_look(tmp_path):
    kinesis = two_shards()
    job = query(kinesis, tmp_path)
    process_all_available(job)
    kinesis.before_look = lambda: kinesis.shards["s/a"].times.append(9) if len(job.expected()) < 5 else None
    assert job.batch()
    assert len(job.delivered()) == 5


def test_a_look_that_is_late_ends_the_call_in_time_and_spark_asks_again(tmp_path):
    kinesis = two_shards()
    job = query(kinesis, tmp_path)
    process_all_available(job)
    kinesis.clock.ms += 3_600_000  # tips are confirmed by a batch without records
    process_all_available(job)
    kinesis.late_looks = 2
    kinesis.shards["s/a"].times.append(9)
    process_all_available(job)
    assert kinesis.late_looks == 0
    assert sorted(job.delivered()) == sorted(job.expected())


def test_spark_asks_again_after_a_look_in_which_the_process_was_stopped(tmp_path):
    kinesis = two_shards()
    job = query(kinesis, tmp_path)
    process_all_available(job)
    kinesis.clock.sleep(5)
    process_all_available(job)
    kinesis.before_look = lambda: kinesis.clock.sleep(600)
    kinesis.late_looks = 1
    assert job.batch()


def test_while_a_shard_does_not_answer_batches_without_rows_run_for_ten_seconds_and_then_none(tmp_path):
    kinesis = two_shards()
    job = query(kinesis, tmp_path)
    process_all_available(job)
    kinesis.late_looks = 200
    batches = [job.batch() for _ in range(100)]
    first_without = batches.index(False)
    assert NO_ANSWER_SECONDS / ANSWER_SECONDS - 1 < first_without < 10
    assert not any(batches[first_without:])
    kinesis.shards["s/a"].times.append(9)
    kinesis.late_looks = 0
    process_all_available(job)
    assert sorted(job.delivered()) == sorted(job.expected())
    kinesis.late_looks = 1
    assert job.batch(), "the shard has answered since, so Spark asks again"


def test_a_look_that_cannot_ask_every_shard_ends_the_call(tmp_path):
    kinesis = two_shards()
    job = query(kinesis, tmp_path)
    process_all_available(job)
    kinesis.late_looks, kinesis.late_look = 10, LookResult.PARTIAL
    process_all_available(job)
    assert kinesis.late_looks > 0
