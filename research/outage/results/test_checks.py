"""Every check of the first part can fail."""

from outage.results.checks import SuspensionResult, check_our_rule
from outage.results.event_log import EventLog
from outage.results.sample_reports import alarm, report, shard_report
from outage.scenario import MINUTE_MS, Timeline

LATE, OTHER = "orders/late", "orders/other"
SENT = {LATE: 5, OTHER: 8}


def result(rows, alarms=(), code=0, values=(0, 1, 5, 9), repeated=0):
    """A result in which worker 1 has the late shard; `values` are minutes of the global watermark at 4, 6, 10 and 14 s."""
    log = EventLog(0.0)
    log.add_action(5.0, "stopped", 1)
    for at, value in zip((4.0, 6.0, 10.0, 14.0), values, strict=True):
        log.add_message(report(at, 0, {OTHER: shard_report()}, value * MINUTE_MS, {OTHER: rows[OTHER]}))
    log.add_message(report(14.0, 1, {LATE: shard_report(records=rows[LATE])}, 0, {LATE: rows[LATE]}, repeated))
    for document in alarms:
        log.add_message(document)
    return SuspensionResult(log, SENT, LATE, Timeline(), code)


def failed(checks):
    return [check.name for check in checks if not check.passed]


def test_every_check_passes():
    checks = check_our_rule(result(SENT))

    assert failed(checks) == []
    assert ("the late shard was read", "1.5 s after its first record") in [(each.name, each.found) for each in checks]


def test_records_that_are_missing():
    assert "records written" in failed(check_our_rule(result({LATE: 5, OTHER: 7})))


def test_a_late_shard_that_is_not_read():
    assert failed(check_our_rule(result({LATE: 0, OTHER: 8}))) == ["records written", "the late shard was read"]


def test_records_that_were_written_twice():
    assert failed(check_our_rule(result(SENT, repeated=1))) == ["records written twice"]


def test_a_global_watermark_that_fell():
    assert failed(check_our_rule(result(SENT, values=(0, 1, 5, 4)))) == ["largest step back of the global watermark"]


def test_others_that_stood_still_while_one_was_stopped():
    assert failed(check_our_rule(result(SENT, values=(0, 1, 1, 9)))) == ["the others went on while it was stopped"]


def test_an_alarm_that_lasts_and_one_that_is_over():
    lasting = [alarm(9, 0, OTHER)]
    assert failed(check_our_rule(result(SENT, lasting))) == ["alarms that last"]
    assert failed(check_our_rule(result(SENT, [*lasting, alarm(12, 0, OTHER, is_over=True)]))) == []


def test_lag_check_that_raises_an_alarm():
    assert failed(check_our_rule(result(SENT, code=3))) == ["recordpublisher lag --check"]
