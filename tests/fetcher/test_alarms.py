"""A2: an alarm is reported once, again in each interval, and when it is over."""

import logging

from recordpublisher.fetcher.alarms import MAX_LOGGED, ActiveAlarms, Alarm, AlarmKind


def alarm(subject="s/a", lasting_ms=10_000):
    return Alarm(AlarmKind.UNREAD, subject, lasting_ms, "nobody owns it")


def reported_alarms(*checks):
    reported = []
    alarms = ActiveAlarms(10_000, reported.append)
    for found in checks:
        alarms.update(found)
    return reported


def test_an_alarm_is_reported_once_and_again_an_interval_later():
    reported = reported_alarms([alarm()], [alarm(lasting_ms=12_000)], [alarm(lasting_ms=20_000)])

    assert [each.lasting_ms for each in reported] == [10_000, 20_000]


def test_the_end_of_an_alarm_is_reported():
    reported = reported_alarms([alarm("s/a"), alarm("s/b")], [alarm("s/b", 11_000)])

    assert [(each.subject, each.is_over) for each in reported] == [("s/a", False), ("s/b", False), ("s/a", True)]


def test_active_alarms_can_be_counted_and_searched():
    alarms = ActiveAlarms(10_000)
    alarms.update([alarm()])
    assert (len(alarms), "s/a" in alarms, "s/b" in alarms) == (1, True, False)
    alarms.update([])
    assert (len(alarms), "s/a" in alarms) == (0, False)


def test_the_log_names_what_for_how_long_and_why(caplog):
    caplog.set_level(logging.INFO)
    alarms = ActiveAlarms(10_000)
    alarms.update([alarm()])
    alarms.update([])

    assert [(record.levelno, record.message) for record in caplog.records] == [
        (logging.ERROR, "a shard has unread records and emits none: s/a, for 10 s; nobody owns it"),
        (logging.INFO, "over: a shard has unread records and emits none: s/a"),
    ]


def test_a_listener_that_fails_is_logged_and_nothing_else(caplog):
    def listener(alarm):
        raise ValueError("no pager")

    alarms = ActiveAlarms(10_000, listener)
    alarms.update([alarm()])

    assert len(alarms) == 1
    assert "no pager" in caplog.text


def test_many_alarms_do_not_flood_the_log_but_every_one_is_reported(caplog):
    reported = []
    alarms = ActiveAlarms(10_000, reported.append)
    alarms.update([alarm(f"s/{number}") for number in range(MAX_LOGGED + 5)])

    assert len(reported) == MAX_LOGGED + 5
    assert len(caplog.records) == MAX_LOGGED + 1
    assert caplog.records[-1].message == "further alarms that are not shown in the log: 5"
