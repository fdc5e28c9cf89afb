"""Planning batch after batch, without Spark: nothing twice, nothing lost, parents first, event times together."""

from __future__ import annotations

import json
import logging
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spark_simulation import NOW, MemoryClaims, SimulatedKinesis, SimulatedQuery, StillClock

from recordpublisher.plugins.sinks.spark.offset import NOTHING, Offset
from recordpublisher.plugins.sinks.spark.options import SparkOptions
from recordpublisher.plugins.state.file_claims import FileClaimStore
from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.positions import PositionType, StartingPosition
from recordpublisher.publishers.properties import Properties
from recordpublisher.publishers.shards import Shard

LOOKAHEAD = "flink.watermark.lookahead.millis"
IDLE = "flink.shard.idle.interval"


def options(tmp_path: Path, max_records: int | None = None, max_tasks: int = 2, **properties: object) -> SparkOptions:
    return SparkOptions(("s",), str(tmp_path), Properties(properties), max_records=max_records, max_tasks=max_tasks)


def query(kinesis: SimulatedKinesis, tmp_path: Path, **kwargs: object) -> SimulatedQuery:
    return SimulatedQuery(kinesis, FileClaimStore(tmp_path), options(tmp_path, **kwargs))


@pytest.fixture
def kinesis() -> SimulatedKinesis:
    return SimulatedKinesis()


def test_reads_every_record_once_and_then_waits(kinesis, tmp_path):
    kinesis.add("a", [1, 2, 3])
    kinesis.add("b", [4])
    job = query(kinesis, tmp_path)
    job.run()
    assert sorted(job.delivered()) == sorted(job.expected())


def test_quiet_shards_are_looked_at_once_in_a_probe_interval(kinesis, tmp_path):
    kinesis.add("a", [1])
    job = query(kinesis, tmp_path)
    assert job.batch()
    assert job.batch()  # records came, so there may be more
    assert not job.batch()
    kinesis.clock.ms += 1000
    assert job.batch()


def test_a_batch_limit_is_shared_in_rotation_so_that_every_shard_progresses(kinesis, tmp_path):
    for name in "abcd":
        kinesis.add(name, list(range(6)))
    job = query(kinesis, tmp_path, max_records=3)
    job.run()
    assert all(len(rows) <= 3 for rows in job.rows.values())
    assert sorted(job.delivered()) == sorted(job.expected())


def test_s2_children_are_read_after_the_last_record_of_their_parents(kinesis, tmp_path):
    kinesis.add("parent", [1, 2])
    left = kinesis.add("left", [3], ("parent",))
    right = kinesis.add("right", [4], ("parent",))
    kinesis.close("parent", left, right)
    job = query(kinesis, tmp_path)
    job.run()
    assert job.delivered()[:2] == [("s/parent", "1"), ("s/parent", "2")]
    assert sorted(job.delivered()) == sorted(job.expected())


def test_s2_a_merged_shard_waits_for_both_parents(kinesis, tmp_path):
    kinesis.add("short", [1])
    kinesis.add("long", [1, 2, 3, 4])
    merged = kinesis.add("merged", [5], ("short", "long"))
    kinesis.close("short", merged)
    kinesis.close("long", merged)
    job = query(kinesis, tmp_path, max_records=2)
    job.run()
    assert job.delivered()[-1] == ("s/merged", "1")
    assert sorted(job.delivered()) == sorted(job.expected())


def test_ended_shards_leave_the_offset_and_are_not_read_again_from_an_old_listing(kinesis, tmp_path):
    parent = kinesis.add("g0", [1])
    kinesis.discovered = [parent]
    for generation in range(1, 6):
        child = kinesis.add(f"g{generation}", [1], (f"g{generation - 1}",))
        kinesis.close(f"g{generation - 1}", child)
    job = query(kinesis, tmp_path)
    job.kinesis.start = StartingPosition.trim_horizon()
    job.run()
    assert set(job.last.shards) == {"s/g5"}
    assert sorted(job.delivered()) == sorted(job.expected())


def test_s3_a_shard_found_by_discovery_alone_is_read_from_trim_horizon(kinesis, tmp_path):
    kinesis.add("parent", [1])
    kinesis.start = StartingPosition.latest()
    job = query(kinesis, tmp_path)
    job.run(3)
    child = kinesis.add("child", [7, 8], ("parent",))
    kinesis.close("parent")  # the answer did not name its children
    kinesis.discovered = [child]
    job.run()
    assert job.delivered() == [("s/child", "1"), ("s/child", "2")]


def test_p3_latest_is_pinned_to_the_servers_clock(kinesis, tmp_path):
    kinesis.add("a", [1])
    kinesis.start = StartingPosition.latest()
    job = query(kinesis, tmp_path)
    assert not job.log
    job.batch()
    start = Offset.from_json(job.log[0]).shards["s/a"].state.start
    assert (start.type, start.timestamp_ms) == (PositionType.AT_TIMESTAMP, NOW)


def test_a_stream_added_to_a_running_job_starts_at_the_jobs_start(kinesis, tmp_path):
    kinesis.add("a", [1])
    job = query(kinesis, tmp_path)
    job.run(3)
    kinesis.add("x", [1, 2], stream="t")
    job.options = replace(job.options, streams=("s", "t"))
    job.restart()
    job.run()
    assert sorted(job.delivered()) == sorted(job.expected())


# --- replays ----------------------------------------------------------------------------------------------------------------------


def test_every_replay_of_a_batch_gives_the_same_rows_although_more_came_meanwhile(kinesis, tmp_path):
    kinesis.add("a", [1, 2])
    kinesis.add("b", [3])
    job = query(kinesis, tmp_path)
    job.batch()
    before = job.rows[1]
    kinesis.shards["s/a"].times += [9, 10]
    job.restart()
    job.run_again()
    assert job.rows[1] == before


def test_a_fan_out_job_subscribes_for_the_first_read_only(kinesis, tmp_path):
    kinesis.add("a", [1, 2])
    job = query(kinesis, tmp_path, **{"flink.stream.recordpublisher": "EFO", "flink.stream.efo.consumername": "c"})
    job.batch()
    job.run_again()
    assert [publisher for publisher, _ in kinesis.reads] == ["EFO", "POLLING"]


def test_f9_a_fan_out_batch_is_planned_when_the_window_of_the_last_is_over(kinesis, tmp_path):
    kinesis.add("a", [1, 2])
    job = query(kinesis, tmp_path, **{"flink.stream.recordpublisher": "EFO", "flink.stream.efo.consumername": "c"})
    job.batch()
    began = kinesis.clock.ms - 100
    while not job.batch():
        pass
    assert job.last.planned_ms >= began + 5_000


def test_claims_that_are_gone_are_read_again_and_nothing_is_lost(kinesis, tmp_path, caplog):
    kinesis.add("a", [1, 2, 3])
    kinesis.add("b", [4, 5])
    job = query(kinesis, tmp_path)
    job.batch()
    shutil.rmtree(tmp_path)
    job.restart()
    with caplog.at_level(logging.WARNING):
        job.run()
    assert set(job.delivered()) == job.expected()
    assert "claims of batch 1 are missing" in caplog.text


def test_claims_of_a_deleted_checkpoint_are_not_obeyed(kinesis, tmp_path):
    kinesis.add("a", [1, 2, 3])
    query(kinesis, tmp_path).run()
    again = query(kinesis, tmp_path)
    again.run()
    assert sorted(again.delivered()) == sorted(again.expected())


def test_a_claim_that_names_other_shards_fails_the_task(kinesis, tmp_path):
    kinesis.add("a", [1])
    kinesis.add("b", [1])
    job = query(kinesis, tmp_path)
    job.batch()
    first, second = job.planner.partitions(job.last)
    with pytest.raises(StateError, match="other shards"):
        job.rows_of(replace(first, group=second.group))


def test_an_unread_task_is_read_by_the_next_batch(kinesis, tmp_path):
    kinesis.add("a", [1])
    kinesis.add("b", [1])
    job = query(kinesis, tmp_path)
    job.read_task = lambda plan: plan.group == 0
    job.batch()
    job.read_task = lambda plan: True
    job.run()
    assert sorted(job.delivered()) == sorted(job.expected())


def test_old_claims_are_purged_and_those_of_other_queries_stay(kinesis, tmp_path):
    kinesis.add("a", [1])
    other = query(kinesis, tmp_path)
    other.batch()
    job = query(kinesis, tmp_path)
    for _ in range(40):
        kinesis.shards["s/a"].times.append(1)
        job.batch()
    kept = list((tmp_path / job.last.query).glob("0*"))
    assert len(kept) <= job.options.retain + 2
    assert list((tmp_path / other.last.query).glob("0*"))


# --- AvailableNow -----------------------------------------------------------------------------------------------------------------


def test_available_now_stops_at_the_tip_as_of_the_call(kinesis, tmp_path):
    kinesis.add("a", [1, 2, 3])
    kinesis.add("b", [])
    job = query(kinesis, tmp_path, max_records=2)
    job.planner.prepare_available_now()
    while job.batch():
        pass
    assert sorted(job.delivered()) == sorted(job.expected())


def test_the_next_available_now_run_goes_on_where_the_last_ended(kinesis, tmp_path):
    kinesis.add("a", [1, 2, 3])
    job = query(kinesis, tmp_path)
    for _ in range(3):
        job.planner.prepare_available_now()
        while job.batch():
            pass
        kinesis.shards["s/a"].times += [4, 5]
        job.restart()
    assert job.delivered() == [("s/a", str(n + 1)) for n in range(7)]


def test_available_now_ends_although_alignment_waits_for_a_silent_shard(kinesis, tmp_path):
    kinesis.add("a", list(range(0, 100_000, 1000)))
    kinesis.add("silent", [])
    job = query(kinesis, tmp_path, **{LOOKAHEAD: 5000})
    job.planner.prepare_available_now()
    while job.batch():
        pass
    assert sorted(job.delivered()) == sorted(job.expected())


# --- alignment --------------------------------------------------------------------------------------------------------------------


def spread(job: SimulatedQuery) -> int:
    times = [[row[2] for row in rows] for rows in job.rows.values()]
    return max((max(each) - min(each) for each in times if each), default=0)


def test_w8_the_first_batches_keep_the_spread_too(kinesis, tmp_path):
    kinesis.add("early", list(range(0, 60_000, 1000)))
    kinesis.add("late", list(range(30_000, 60_000, 500)))
    job = query(kinesis, tmp_path, **{LOOKAHEAD: 5000})
    job.run()
    assert sorted(job.delivered()) == sorted(job.expected())
    assert spread(job) <= 5000
    assert Offset.from_json(job.log[1]).bound == NOTHING


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
    job.run()
    assert job.last.shards["s/silent"].idle
    assert len(job.delivered()) == 100
    kinesis.shards["s/silent"].times.append(200_000)
    kinesis.clock.ms += 1000
    job.batch()
    job.run(2)
    assert not job.last.shards["s/silent"].idle


def test_w5_a_child_inherits_its_parents_watermark_and_does_not_pull_the_global_one_back(kinesis, tmp_path):
    kinesis.add("parent", [50_000])
    child = kinesis.add("child", [51_000], ("parent",))
    kinesis.close("parent", child)
    kinesis.add("other", list(range(49_000, 60_000, 100)))
    job = query(kinesis, tmp_path, **{LOOKAHEAD: 2000})
    job.run(40)
    values = [Offset.from_json(entry).global_watermark for entry in job.log]
    known = [value for value in values if value is not None]
    assert known == sorted(known)
    # an open child that is at its tip holds the others on purpose (W2): everything up to its watermark + lookahead has come
    assert max(row[2] for rows in job.rows.values() for row in rows) == 53_000


def test_held_shards_are_counted_and_not_read(kinesis, tmp_path):
    kinesis.add("ahead", [100_000, 100_001])
    kinesis.add("behind", list(range(0, 50_000, 1000)))
    job = query(kinesis, tmp_path, **{LOOKAHEAD: 1000})
    job.run(10)
    held = job.last.shards["s/ahead"]
    assert held.held_batches >= 5
    assert held.held_ms > 0
    assert kinesis.reads[-1][1] == ["s/behind"]


# --- whatever happens -------------------------------------------------------------------------------------------------------------

event_times = st.lists(st.integers(0, 20_000), max_size=25)


@st.composite
def worlds(draw: st.DrawFn, resharded: bool = True) -> SimulatedKinesis:
    """Some shards, some of them split or merged, event times out of order by up to 500 ms."""
    kinesis = SimulatedKinesis(clock=StillClock(), out_of_orderness=500)
    roots = [f"r{n}" for n in range(draw(st.integers(1, 4)))]
    for name in roots:
        steps = draw(event_times)
        kinesis.add(name, [max(0, time - draw(st.integers(0, 500))) for time in sorted(steps)])
    if resharded and draw(st.booleans()):
        children = [kinesis.add(f"c{n}", sorted(draw(event_times)), ("r0",)) for n in range(2)]
        kinesis.close("r0", *(children if draw(st.booleans()) else ()))
        kinesis.discovered = children
    if resharded and len(roots) > 2 and draw(st.booleans()):
        merged = kinesis.add("m", sorted(draw(event_times)), ("r1", "r2"))
        kinesis.close("r1", merged)
        kinesis.close("r2", merged)
    return kinesis


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(worlds(), st.one_of(st.none(), st.integers(1, 7)), st.integers(1, 4), st.randoms(use_true_random=False))
def test_every_record_comes_once_in_order_whatever_restarts(kinesis, limit, tasks, chance: random.Random):
    job = SimulatedQuery(kinesis, MemoryClaims(), options(Path("memory"), max_records=limit, max_tasks=tasks))
    for _ in range(150):
        job.batch()
        if chance.random() < 0.3:
            job.restart()
        if chance.random() < 0.3 and len(job.log) > 1:
            job.run_again()
    check_exactly_once(job)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(worlds(), st.integers(0, 3000), st.integers(1, 3))
def test_alignment_keeps_the_spread_and_never_stalls(kinesis, lookahead, tasks):
    aligned = options(Path("memory"), max_tasks=tasks, **{LOOKAHEAD: lookahead, IDLE: 400})
    job = SimulatedQuery(kinesis, MemoryClaims(), aligned)
    for _ in range(300):
        job.batch()
    check_exactly_once(job)
    values = [Offset.from_json(entry).global_watermark for entry in job.log]
    known = [value for value in values if value is not None]
    assert known == sorted(known)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(worlds(resharded=False), st.integers(0, 3000), st.one_of(st.none(), st.integers(1, 7)))
def test_w8_event_times_of_a_batch_lie_within_lookahead_and_out_of_orderness(kinesis, lookahead, limit):
    aligned = options(Path("memory"), max_records=limit, **{LOOKAHEAD: lookahead})
    job = SimulatedQuery(kinesis, MemoryClaims(), aligned)
    for _ in range(100):
        job.batch()
    assert spread(job) <= lookahead + kinesis.out_of_orderness


def check_exactly_once(job: SimulatedQuery) -> None:
    delivered = job.delivered()
    assert len(delivered) == len(set(delivered))
    assert set(delivered) == job.expected()
    for key in job.kinesis.shards:
        numbers = [int(sequence) for shard, sequence in delivered if shard == key]
        assert numbers == sorted(numbers)
    for each in job.kinesis.shards.values():
        for parent in each.shard.parents:
            check_parent_first(delivered, f"s/{parent}", each.shard)


def check_parent_first(delivered: list[tuple[str, str]], parent: str, child: Shard) -> None:
    places = {key: [n for n, row in enumerate(delivered) if row[0] == key] for key in (parent, child.key)}
    if places[parent] and places[child.key]:
        assert max(places[parent]) < min(places[child.key])


def test_an_offset_survives_its_json_text(kinesis, tmp_path):
    kinesis.add("a", [1, 2])
    job = query(kinesis, tmp_path, **{LOOKAHEAD: 1000})
    job.run(4)
    text = json.dumps(job.log[-1])
    assert json.dumps(Offset.from_json(text).to_json()) == text


def test_an_offset_of_a_newer_release_is_refused(kinesis, tmp_path):
    with pytest.raises(StateError, match="version 99"):
        Offset.from_json({"v": 99})
