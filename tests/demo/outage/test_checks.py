"""The verdict can miss: each promise, broken."""

from recordpublisher.demo.outage.checks import Evidence, findings_of_flink, findings_of_ours
from recordpublisher.demo.outage.event_log import Recording
from recordpublisher.demo.outage.scenario import MINUTE_MS, Script

from fakes.outage_reports import alarm, report, shard_report

LATE, OTHER = "orders/late", "orders/other"
SENT = {LATE: 5, OTHER: 8}


def played(rows, alarms=(), code=0, values=(0, 1, 5, 9), repeated=0):
    """A play in which subtask 1 has the late shard; `values` are minutes of the global watermark at 4, 6, 10 and 14 s."""
    recording = Recording(0.0)
    recording.act(5.0, "stopped", 1)
    for at, value in zip((4.0, 6.0, 10.0, 14.0), values, strict=True):
        recording.hear(report(at, 0, {OTHER: shard_report()}, value * MINUTE_MS, {OTHER: rows[OTHER]}))
    recording.hear(report(14.0, 1, {LATE: shard_report(records=rows[LATE])}, 0, {LATE: rows[LATE]}, repeated))
    for document in alarms:
        recording.hear(document)
    return Evidence(recording, SENT, LATE, Script(), code)


def missed(findings):
    return [finding.what for finding in findings if not finding.is_right]


def test_a_play_that_keeps_every_promise():
    findings = findings_of_ours(played(SENT))

    assert missed(findings) == []
    assert ("the late shard was read", "1.5 s after its first record") in [(each.what, each.found) for each in findings]


def test_records_that_are_missing():
    assert "records written" in missed(findings_of_ours(played({LATE: 5, OTHER: 7})))


def test_a_late_shard_that_is_not_read():
    assert missed(findings_of_ours(played({LATE: 0, OTHER: 8}))) == ["records written", "the late shard was read"]


def test_records_that_were_written_twice():
    assert missed(findings_of_ours(played(SENT, repeated=1))) == ["records written twice"]


def test_a_global_watermark_that_fell():
    assert missed(findings_of_ours(played(SENT, values=(0, 1, 5, 4)))) == ["largest step back of the global watermark"]


def test_others_that_stood_still_with_the_one_that_was_stopped():
    assert missed(findings_of_ours(played(SENT, values=(0, 1, 1, 9)))) == ["the others went on while it was stopped"]


def test_an_alarm_that_lasts_and_one_that_is_over():
    lasting = [alarm(9, 0, OTHER)]
    assert missed(findings_of_ours(played(SENT, lasting))) == ["alarms that last"]
    assert missed(findings_of_ours(played(SENT, [*lasting, alarm(12, 0, OTHER, is_over=True)]))) == []


def test_a_look_from_outside_that_is_alarmed():
    assert missed(findings_of_ours(played(SENT, code=3))) == ["recordpublisher lag --check"]


def test_the_outage_itself():
    unread = {LATE: 0, OTHER: 8}
    assert missed(findings_of_flink(played(unread, [alarm(15, 1, LATE)], code=3))) == []


def test_an_outage_that_nobody_noticed_or_that_was_none():
    unread = {LATE: 0, OTHER: 8}
    assert missed(findings_of_flink(played(unread, code=0))) == ["alarms that last", "recordpublisher lag --check"]
    assert f"{LATE} stays unread" in missed(findings_of_flink(played(SENT, [alarm(15, 1, LATE)], code=3)))
