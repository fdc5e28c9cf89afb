"""What the driver does now: each case of `next_step`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recordpublisher.fetcher.pipeline.retention_gaps import ShardObservation
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.plugins.spark.options.spark_options import SparkOptions
from recordpublisher.plugins.spark.source.batch_plan import BatchPlan, Decision, Facts, Wait, Watch, next_step
from recordpublisher.plugins.spark.source.claims import BatchClaims, ShardRead
from recordpublisher.plugins.spark.source.offset import BatchOffset, ShardOffset
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shards import Shard

NOW, PROBE, WINDOW, HOUR = 100_000, 1_000, 5_500, 3_600_000
STATE = ShardState(StartingPosition.trim_horizon())
ENTRY = ShardOffset(Shard("s", "a"), STATE, task=0)
START = BatchOffset("query", "plan", 3, NOW - 200, {"s/a": ENTRY})
AT_TIP = ShardObservation(at_tip=True, behind_ms=0)
QUIET = BatchClaims({"s/a": ShardRead(STATE, STATE, seen=AT_TIP)})
BUSY = BatchClaims({"s/a": ShardRead(STATE, STATE, records=5, seen=AT_TIP)})
UNREAD = BatchClaims(missing=[0])
SUBSCRIBED = replace(BUSY, subscribed_ms=NOW - 1_000)

PLAN = BatchPlan(START, QUIET, START, (ENTRY,), False, True, NOW + HOUR, False, False)
FACTS = Facts(NOW, 0, False, False, seen_ms=NOW)
OPTIONS = SparkOptions(("s",), "", Properties(), probe_ms=PROBE, fan_out_window_ms=WINDOW)
LONG_AGO = replace(START, planned_ms=NOW - PROBE)


@pytest.mark.parametrize(
    ("plan", "facts", "step"),
    [
        pytest.param(
            replace(PLAN, claims=SUBSCRIBED), FACTS, Wait(NOW + 4_500, may_be_new=True), id="subscribed a second ago"
        ),
        pytest.param(
            replace(PLAN, claims=replace(BUSY, subscribed_ms=NOW + HOUR)),
            FACTS,
            Wait(NOW + WINDOW, may_be_new=True),
            id="an executor's clock is an hour ahead",
        ),
        pytest.param(
            replace(PLAN, claims=UNREAD, previous=replace(START, planned_ms=NOW + HOUR)),
            FACTS,
            Decision.PLAN,
            id="the clock was set back after an unread batch",
        ),
        pytest.param(PLAN, replace(FACTS, retry_at_ms=NOW + 7), Wait(NOW + 7), id="an outage is waited out"),
        pytest.param(replace(PLAN, is_run_over=True), FACTS, Decision.FINISH, id="the run is over"),
        pytest.param(
            replace(PLAN, is_run_over=True, has_unlisted_ends=True), FACTS, Decision.LIST, id="children are unknown"
        ),
        pytest.param(
            replace(PLAN, is_run_over=True, has_unlisted_ends=True),
            replace(FACTS, has_listed=True),
            Decision.FINISH,
            id="children are unknown after a listing",
        ),
        pytest.param(replace(PLAN, readable=()), FACTS, Wait(NOW), id="no shard can be read"),
        pytest.param(replace(PLAN, has_unlisted_ends=True), FACTS, Decision.LIST, id="quiet, but children are unknown"),
        pytest.param(
            replace(PLAN, readable=(), has_unlisted_ends=True), FACTS, Decision.LIST, id="all ended, children unknown"
        ),
        pytest.param(replace(PLAN, claims=UNREAD), FACTS, Wait(NOW + 800), id="no task has read the batch"),
        pytest.param(
            replace(PLAN, claims=UNREAD, previous=LONG_AGO), FACTS, Decision.PLAN, id="nor for a probe interval"
        ),
        pytest.param(replace(PLAN, is_available_now=True), FACTS, Wait(NOW + 800), id="an AvailableNow run is quiet"),
        pytest.param(
            replace(PLAN, is_available_now=True, claims=BUSY), FACTS, Decision.PLAN, id="an AvailableNow run goes on"
        ),
        pytest.param(replace(PLAN, read_everything=False), FACTS, Decision.PLAN, id="there is more to read"),
        pytest.param(PLAN, replace(FACTS, found_new=True), Decision.PLAN, id="the watch has found something"),
        pytest.param(replace(PLAN, due_ms=NOW, previous=LONG_AGO), FACTS, Decision.PLAN, id="a batch is due"),
        pytest.param(replace(PLAN, due_ms=NOW), FACTS, Watch(NOW + 800, False), id="due, in the probe interval"),
        pytest.param(PLAN, FACTS, Watch(NOW + PROBE, False), id="the stream is quiet"),
        pytest.param(replace(PLAN, claims=BUSY), FACTS, Watch(NOW + PROBE, True), id="records came before the quiet"),
    ],
)
def test_each_case_has_its_step(plan, facts, step):
    assert next_step(plan, facts, OPTIONS) == step
