"""The verdict of the morning after can miss: each promise, broken."""

from dataclasses import replace

import pytest

from recordpublisher.demo.outage.catch_up import Morning
from recordpublisher.demo.outage.checks import findings_of_morning
from recordpublisher.demo.outage.event_log import Recording
from recordpublisher.demo.outage.scenario import DAY_MS

from fakes.outage_reports import alarm, report, shard_report

BEHIND, OTHER = "m/behind", "m/other"
SENT = {BEHIND: 90, OTHER: 30}
HELD = {BEHIND: shard_report(records=40), OTHER: shard_report(heldMs=7_000, held=True)}


def seen(rows=SENT, **more):
    recording = Recording(0.0)
    recording.hear(alarm(4, 0, OTHER))
    shards = {BEHIND: shard_report(lateAfterIdle=50), OTHER: shard_report()}
    recording.hear(report(20, 0, shards, rows=rows))
    return replace(Morning(recording, HELD, 2 * DAY_MS, 1, 1.5, True, SENT, BEHIND), **more)


def missed(morning):
    return [finding.what for finding in findings_of_morning(morning) if not finding.is_right]


def test_a_morning_that_keeps_every_promise():
    assert missed(seen()) == []


BROKEN = [
    ({"held": {**HELD, OTHER: shard_report(heldMs=900)}}, "without max.lag the others are held back"),
    ({"held": {**HELD, OTHER: shard_report(heldMs=7_000, records=1)}}, "without max.lag the others are held back"),
    ({"freed_seconds": None}, "with max.lag they go on at once"),
    ({"freed_seconds": 30.0}, "with max.lag they go on at once"),
    ({"was_left_out": False}, "the shard behind is left out meanwhile"),
    ({"rows": {BEHIND: 89, OTHER: 30}}, "records written"),
    ({"rows": {BEHIND: 91, OTHER: 30}}, "records written"),
]


@pytest.mark.parametrize(("changed", "what"), BROKEN)
def test_what_is_broken_is_named(changed, what):
    assert missed(seen(**changed)) == [what]


def test_a_shard_that_never_counts_again_is_named():
    morning = seen()
    morning.recording.hear(report(21, 0, {BEHIND: shard_report(leftOut=True, lateAfterIdle=1)}, rows=SENT))

    assert missed(morning) == ["it counts again once it has caught up"]
