"""What the log of a replay keeps."""

from outage.results.event_log import EventLog
from outage.results.sample_reports import alarm, report, shard_report


def log_of(*documents, began=100.0):
    log = EventLog(began)
    for document in documents:
        log.add_message(document)
    return log


def test_times_count_from_the_beginning():
    log = log_of(report(101.5, 0, {"s/a": shard_report()}), alarm(103.0, 0, "s/a"))

    assert [report.at for report in log.reports] == [1.5]
    assert [at for at, _, _ in log.alarms] == [3.0]


def test_rows_are_those_of_all_processes_also_of_those_that_were_stopped():
    log = log_of(report(101, 0, {}, rows={"s/a": 3}), report(102, 1, {}, rows={"s/b": 5}))
    log.restart()
    log.add_message(report(103, 0, {}, rows={"s/a": 4, "s/b": 1}))

    assert log.rows == {"s/a": 7, "s/b": 6}
    assert log.rows_since_restart == {"s/a": 4, "s/b": 1}


def test_a_worker_is_idle_when_all_its_open_shards_are():
    def report_of(*flags):
        shards = {f"s/{place}": shard_report(idle=flag) for place, flag in enumerate(flags)}
        return log_of(report(101, 0, shards)).reports[0]

    assert report_of(True, True).is_idle
    assert not report_of(True, False).is_idle
    assert not report_of().is_idle


def test_the_held_watermark_is_that_of_the_lowest_held_record():
    shards = {
        "s/a": shard_report(held=True, nextWatermark=7),
        "s/b": shard_report(held=True, nextWatermark=5),
        "s/c": shard_report(nextWatermark=1),
    }
    assert log_of(report(101, 0, shards)).reports[0].held_watermark == 5


def test_the_largest_step_back_is_that_of_any_one_worker():
    values = [(0, 10), (1, 50), (0, 30), (1, 45), (0, 30), (1, 20)]
    log = log_of(*(report(101 + place, number, {}, value) for place, (number, value) in enumerate(values)))

    assert log.largest_watermark_regression() == 30
