"""The rules of watermarks, and that the running fetcher and Spark's planner both decide by them.

Each case describes one shard. The fetcher has it as an entry of its table, Spark as an entry of an offset.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

from recordpublisher.fetcher import global_watermark_rules as rules
from recordpublisher.fetcher.pipeline.retention_gaps import ShardObservation
from recordpublisher.fetcher.shards.shard_entry import ShardEntry, ShardStage
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.fetcher.watermarks import ActiveMinimum
from recordpublisher.plugins.spark.source.offset import EMIT_NOTHING, ShardOffset
from recordpublisher.plugins.spark.source.offset_alignment import AlignmentSettings, is_active, next_global_watermark
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shards import Shard

from fakes.shard_entries import in_stage

PARENT = Shard("s", "parent")
OFF = AlignmentSettings()


@dataclass(frozen=True)
class Case:
    """A shard that emitted up to `emitted`, has a record with watermark `waiting` to come, and is idle, ended or waits for its parent."""

    emitted: int | None = None
    waiting: int | None = None
    idle: bool = False
    ended: bool = False
    waits_for_parent: bool = False


CASES = {
    "open, nothing known": Case(),
    "open, emitted": Case(emitted=5),
    "open, a record waits": Case(emitted=5, waiting=9),
    "idle": Case(emitted=5, idle=True),
    "waits for its parent": Case(waits_for_parent=True),
    "ended": Case(emitted=5, ended=True),
}
ACTIVE = {"open, nothing known", "open, emitted", "open, a record waits"}


def fetcher_entry(case: Case) -> ShardEntry:
    stage = ShardStage.ENDED if case.ended else ShardStage.WAITING if case.waits_for_parent else ShardStage.READING
    entry = in_stage(ShardEntry(Shard("s", "a"), state(case)), stage)
    entry.reading.is_idle = case.idle
    if case.waiting is not None:
        record = UserRecord(b"x", "1", 0.0, "k")
        entry.reading.queue.push(
            RecordBatch(entry.shard, [record], 0, event_times=[case.waiting], watermarks=[case.waiting])
        )
    return entry


def spark_shards(case: Case) -> dict[str, ShardOffset]:
    """The shard, and its parent or child where the case has one."""
    shard = Shard("s", "a", ("parent",) if case.waits_for_parent else ())
    shards = {
        "s/a": ShardOffset(
            shard, state(case), seen=ShardObservation(next_watermark=case.waiting), idle=case.idle, ended_ms=0
        )
    }
    if case.waits_for_parent:
        shards[PARENT.key] = ShardOffset(PARENT, ShardState(StartingPosition.trim_horizon()))
    if case.ended:
        child = Shard("s", "child", ("a",))
        shards[child.key] = ShardOffset(child, ShardState(StartingPosition.trim_horizon()))
    return shards


def state(case: Case) -> ShardState:
    return ShardState(StartingPosition.trim_horizon(), watermark=case.emitted, ended=case.ended)


@pytest.mark.parametrize("name", CASES)
def test_fetcher_and_spark_wait_for_the_same_shards(name):
    shards = spark_shards(CASES[name])
    assert fetcher_entry(CASES[name]).is_active == (name in ACTIVE)
    assert is_active(shards["s/a"], shards, OFF, now_ms=10) == (name in ACTIVE)


@pytest.mark.parametrize("name", CASES)
def test_w1_fetcher_and_spark_enter_a_shard_with_the_same_watermark(name):
    expected = CASES[name].emitted if CASES[name].waiting is None else CASES[name].waiting
    assert fetcher_entry(CASES[name]).alignment_watermark == expected
    assert spark_shards(CASES[name])["s/a"].alignment_watermark == expected


@pytest.mark.parametrize(
    ("watermarks", "current", "expected"),
    [([5, 7], None, 5), ([5, None], None, None), ([5, None], 3, 3), ([5, 7], 6, 6), ([], 3, 3)],
    ids=["lowest", "w2-one-unknown", "w2-one-unknown-keeps-it", "w6-never-falls", "nobody-active"],
)
def test_the_global_watermark_rises_to_the_lowest_active_shard(watermarks, current, expected):
    minimum: ActiveMinimum[int] = ActiveMinimum()
    shards = {}
    for number, watermark in enumerate(watermarks):
        minimum.set(number, True, watermark)
        entry = ShardOffset(Shard("s", str(number)), ShardState(StartingPosition.trim_horizon(), watermark=watermark))
        shards[entry.key] = entry
    assert rules.raised_watermark(current, minimum.status()[1]) == expected
    assert next_global_watermark(current, shards, OFF, 0) == expected


def test_w8_the_emit_limit_lies_the_lookahead_above_the_global_watermark():
    assert (rules.emit_limit(100, None), rules.emit_limit(None, 10), rules.emit_limit(100, 10)) == (
        math.inf,
        -math.inf,
        110,
    )
    assert AlignmentSettings(None).emit_limit(100) is None
    assert AlignmentSettings(10).emit_limit(None) == EMIT_NOTHING
    assert AlignmentSettings(10).emit_limit(100) == 110


def test_w3_a_shard_is_idle_after_the_whole_interval_and_never_with_minus_one():
    assert [rules.is_idle(silent_ms, 100) for silent_ms in (0, 99, 100)] == [False, False, True]
    assert not rules.is_idle(10**9, -1)


def test_w5_an_ended_shard_holds_until_its_children_are_read_or_the_time_is_over():
    assert rules.holds_after_end(has_children=False, has_unread_child=False, waited_ms=0, timeout_ms=10)
    assert rules.holds_after_end(has_children=True, has_unread_child=True, waited_ms=0, timeout_ms=10)
    assert not rules.holds_after_end(has_children=True, has_unread_child=False, waited_ms=0, timeout_ms=10)
    assert not rules.holds_after_end(has_children=True, has_unread_child=True, waited_ms=10, timeout_ms=10)


def test_w5_a_child_inherits_the_lowest_known_watermark_of_its_parents():
    assert rules.inherited_watermark([7, 5]) == 5
    assert rules.inherited_watermark([None, 7]) == 7
    assert rules.inherited_watermark([]) is None
