"""Planning batches without Spark: no record twice, none lost, parents before children."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from recordpublisher.plugins.spark.source.offset import BatchOffset
from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.positions import PositionType

from fakes.spark.queries import FROM_LATEST, LOOKAHEAD, query
from fakes.spark.simulated_kinesis import NOW, SimulatedKinesis


@pytest.fixture
def kinesis() -> SimulatedKinesis:
    return SimulatedKinesis()


def test_reads_every_record_once_and_then_waits(kinesis, tmp_path):
    kinesis.add("a", [1, 2, 3])
    kinesis.add("b", [4])
    job = query(kinesis, tmp_path)
    job.run()
    assert sorted(job.delivered()) == sorted(job.expected())


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


def test_s2_a_merged_shard_waits_for_a_parent_that_was_never_seen(kinesis, tmp_path):
    kinesis.add("long", list(range(10)))
    kinesis.add("short", [1])
    job = query(kinesis, tmp_path, max_records=2)
    job.log.append(job.planner.initial_offset().to_json())
    # "long" is split and one half merged with "short", while "long" is still read and before the next listing
    left, right = kinesis.add("left", [11, 12, 13], ("long",)), kinesis.add("right", [11], ("long",))
    merged = kinesis.add("merged", [20], ("short", "left"))
    kinesis.close("long", left, right)
    kinesis.close("short", merged)
    kinesis.close("left", merged)
    job.run()
    delivered = job.delivered()
    assert sorted(delivered) == sorted(job.expected())
    assert delivered.index(("s/merged", "1")) > delivered.index(("s/left", "3"))


def test_ended_shards_leave_the_offset_and_are_not_read_again_from_an_old_listing(kinesis, tmp_path):
    parent = kinesis.add("g0", [1])
    kinesis.discovered = [parent]
    for generation in range(1, 6):
        child = kinesis.add(f"g{generation}", [1], (f"g{generation - 1}",))
        kinesis.close(f"g{generation - 1}", child)
    job = query(kinesis, tmp_path)
    job.run()
    assert set(job.last.shards) == {"s/g5"}
    assert sorted(job.delivered()) == sorted(job.expected())


@pytest.mark.parametrize("lacks", [["s/g1"], ["s/g1", "s/g2"], ["s/g2"]])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_listing_that_lacks_shards_brings_no_shard_back(kinesis, tmp_path, lacks, restarts):
    """Only the shards that it lacks tell that the first one was read."""
    kinesis.add("g0", [1])
    job = query(kinesis, tmp_path)
    for generation in (1, 2):
        kinesis.close(f"g{generation - 1}", kinesis.add(f"g{generation}", [1], (f"g{generation - 1}",)))
    job.run()
    if restarts:
        job.restart()
        job.run(1)
        kinesis.discovered = []
    kinesis.unlisted = [lacks]
    kinesis.list_shards("s")
    kinesis.shards["s/g2"].times.append(2)
    job.run()
    assert sorted(job.delivered()) == sorted(job.expected())


def test_s3_a_shard_whose_parent_expired_unseen_is_found_by_a_listing(kinesis, tmp_path):
    kinesis.add("g0", [1])
    job = query(kinesis, tmp_path)
    job.run(3)
    kinesis.add("new", [1], ("expired",))
    kinesis.list_shards("s")
    job.run()
    assert sorted(job.delivered()) == sorted(job.expected())


def test_s3_a_shard_found_by_discovery_alone_is_read_from_trim_horizon(kinesis, tmp_path):
    kinesis.add("parent", [1])
    job = query(kinesis, tmp_path, **FROM_LATEST)
    job.run(3)
    child = kinesis.add("child", [7, 8], ("parent",))
    kinesis.close("parent")  # the response did not name its children
    kinesis.discovered = [child]
    job.run()
    assert job.delivered() == [("s/child", "1"), ("s/child", "2")]


def test_p3_latest_is_pinned_to_the_servers_clock(kinesis, tmp_path):
    kinesis.add("a", [1])
    job = query(kinesis, tmp_path, **FROM_LATEST)
    assert not job.log
    job.batch()
    start = BatchOffset.from_json(job.log[0]).shards["s/a"].state.start
    assert (start.type, start.timestamp_ms) == (PositionType.AT_TIMESTAMP, NOW)


def test_available_now_stops_at_the_tip_as_of_the_call(kinesis, tmp_path):
    kinesis.add("a", [1, 2, 3])
    kinesis.add("b", [])
    job = query(kinesis, tmp_path, max_records=2)
    job.planner.prepare_available_now()
    while job.batch():
        pass
    assert sorted(job.delivered()) == sorted(job.expected())


def test_only_the_first_batch_of_an_available_now_run_has_one_task(kinesis, tmp_path):
    for name in "ab":
        kinesis.add(name, [1, 2, 3])
    job = query(kinesis, tmp_path, max_records=2)
    for _ in range(2):
        job.planner.prepare_available_now()
        tasks = []
        while job.batch():
            tasks.append(len(job.tasks()))
        assert tasks[0] == 1
        assert set(tasks[1:]) <= {2, 0}  # a batch that only shows figures has no tasks
        assert 2 in tasks
        kinesis.shards["s/a"].times += [4, 5, 6]
        kinesis.shards["s/b"].times += [4, 5, 6]
        job.restart()


def test_the_next_available_now_run_continues_where_the_last_ended(kinesis, tmp_path):
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


def test_an_offset_survives_its_json_text(kinesis, tmp_path):
    kinesis.add("a", [1, 2])
    job = query(kinesis, tmp_path, **{LOOKAHEAD: 1000})
    job.run(4)
    text = json.dumps(job.log[-1])
    assert json.dumps(BatchOffset.from_json(text).to_json()) == text


def test_an_offset_of_a_newer_release_is_refused(kinesis, tmp_path):
    with pytest.raises(StateError, match="version 99"):
        BatchOffset.from_json({"v": 99})


def test_an_offset_of_the_previous_version_is_refused_with_advice():
    old = {
        "v": 2,
        "query": "q",
        "plan": "p",
        "batch": 3,
        "planned": 5,
        "tasks": 1,
        "start": "LATEST",
        "store": "t",
        "shards": {},
    }
    with pytest.raises(
        StateError, match=r"offset of version 2, and this release reads version 3 only: .* a new checkpointLocation"
    ):
        BatchOffset.from_json(old)


def test_available_now_reads_children_that_only_a_listing_shows(kinesis, tmp_path):
    kinesis.add("parent", [1])
    job = query(kinesis, tmp_path)
    job.planner.initial_offset()
    kinesis.add("child", [7, 8], ("parent",))
    kinesis.close("parent")  # the response did not name its child, and the background discovery has not found it
    job.log.append(job.planner.initial_offset().to_json())
    del job.log[0]["shards"]["s/child"]
    kinesis.discovered = []
    job.planner.prepare_available_now()
    while job.batch():
        pass
    assert sorted(job.delivered()) == sorted(job.expected())


def test_s5_an_added_stream_starts_at_the_start_of_the_job_once_it_is_listed(kinesis, tmp_path):
    kinesis.add("a", [1])
    job = query(kinesis, tmp_path, **FROM_LATEST)
    job.run(3)
    kinesis.add("x", [1, 2], stream="t")
    kinesis.clock.ms += 100_000
    job.options = replace(job.options, streams=("s", "t"))
    job.restart()
    job.batch()
    assert "t/x" not in job.last.shards
    kinesis.discovered = [each.shard for each in kinesis.shards.values()]
    job.run()
    assert job.last.shards["t/x"].state.start.timestamp_ms == NOW


def test_bytes_of_a_batch_are_shared_by_its_tasks(kinesis, tmp_path):
    for name in "abc":
        kinesis.add(name, [1])
    job = query(kinesis, tmp_path, max_tasks=2)
    job.options = replace(job.options, max_batch_bytes=1000)
    job.restart()
    job.batch()
    assert [plan.bounds.max_bytes for plan in job.tasks()] == [500, 500]


def test_a_shard_without_progress_gets_longer_windows_until_its_records_come(kinesis, tmp_path):
    kinesis.add("sleepy", [1])
    kinesis.empty_seconds["s/sleepy"] = 20  # seconds of empty responses, thirteen windows long
    job = query(kinesis, tmp_path)
    job.run(10)
    assert job.delivered() == [("s/sleepy", "1")]


def test_available_now_reads_a_stream_that_was_added(kinesis, tmp_path):
    kinesis.add("a", [1])
    job = query(kinesis, tmp_path)
    job.run()
    kinesis.add("x", [1, 2], stream="t")
    job.options = replace(job.options, streams=("s", "t"))
    job.restart()
    job.planner.prepare_available_now()
    while job.batch():
        pass
    assert sorted(job.delivered()) == sorted(job.expected())
