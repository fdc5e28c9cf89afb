"""Every check of the second part can fail."""

from dataclasses import replace

import pytest

from outage.results.checks import CatchUpResult, check_catch_up
from outage.results.event_log import EventLog
from outage.results.sample_reports import alarm, report, shard_report
from outage.scenario import DAY_MS

BEHIND, OTHER = "m/behind", "m/other"
SENT = {BEHIND: 90, OTHER: 30}
HELD = {BEHIND: shard_report(records=40), OTHER: shard_report(heldMs=7_000, held=True)}


def result(rows=SENT, **more):
    log = EventLog(0.0)
    log.add_message(alarm(4, 0, OTHER))
    shards = {BEHIND: shard_report(lateAfterIdle=50), OTHER: shard_report()}
    log.add_message(report(20, 0, shards, rows=rows))
    return replace(CatchUpResult(log, HELD, 2 * DAY_MS, 1.5, True, SENT, BEHIND), **more)


def failed(result):
    return [check.name for check in check_catch_up(result) if not check.passed]


def test_every_check_passes():
    assert failed(result()) == []


BROKEN = [
    ({"held": {**HELD, OTHER: shard_report(heldMs=900)}}, "without max.lag the others are held back"),
    ({"held": {**HELD, OTHER: shard_report(heldMs=7_000, records=1)}}, "without max.lag the others are held back"),
    ({"release_seconds": None}, "with max.lag they go on at once"),
    ({"release_seconds": 30.0}, "with max.lag they go on at once"),
    ({"was_excluded": False}, "the shard behind is excluded meanwhile"),
    ({"rows": {BEHIND: 89, OTHER: 30}}, "records written"),
    ({"rows": {BEHIND: 91, OTHER: 30}}, "records written"),
]


@pytest.mark.parametrize(("changed", "what"), BROKEN)
def test_the_check_that_fails_is_named(changed, what):
    assert failed(result(**changed)) == [what]


def test_a_shard_that_never_counts_again_is_named():
    caught_up = result()
    caught_up.log.add_message(report(21, 0, {BEHIND: shard_report(excluded=True, lateAfterIdle=1)}, rows=SENT))

    assert failed(caught_up) == ["it counts again once it has caught up"]
