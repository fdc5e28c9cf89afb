"""What is remembered of a play."""

from recordpublisher.demo.outage.event_log import Recording

from fakes.outage_reports import alarm, report, shard_report


def recorded(*documents, began=100.0):
    recording = Recording(began)
    for document in documents:
        recording.hear(document)
    return recording


def test_times_count_from_the_beginning():
    recording = recorded(report(101.5, 0, {"s/a": shard_report()}), alarm(103.0, 0, "s/a"))

    assert [moment.at for moment in recording.moments] == [1.5]
    assert [at for at, _, _ in recording.alarms] == [3.0]


def test_rows_are_those_of_all_processes_also_of_those_that_were_stopped():
    recording = recorded(report(101, 0, {}, rows={"s/a": 3}), report(102, 1, {}, rows={"s/b": 5}))
    recording.start_again()
    recording.hear(report(103, 0, {}, rows={"s/a": 4, "s/b": 1}))

    assert recording.rows == {"s/a": 7, "s/b": 6}
    assert recording.rows_now == {"s/a": 4, "s/b": 1}


def test_a_subtask_is_idle_when_all_its_open_shards_are():
    def moment(*flags):
        shards = {f"s/{place}": shard_report(idle=flag) for place, flag in enumerate(flags)}
        return recorded(report(101, 0, shards)).moments[0]

    assert moment(True, True).is_idle
    assert not moment(True, False).is_idle
    assert not moment().is_idle


def test_the_lowest_held_record_is_the_one_that_waits():
    shards = {
        "s/a": shard_report(held=True, headWatermark=7),
        "s/b": shard_report(held=True, headWatermark=5),
        "s/c": shard_report(headWatermark=1),
    }
    assert recorded(report(101, 0, shards)).moments[0].waiting == 5


def test_the_largest_step_back_is_that_of_any_one_subtask():
    values = [(0, 10), (1, 50), (0, 30), (1, 45), (0, 30), (1, 20)]
    recording = recorded(*(report(101 + place, number, {}, value) for place, (number, value) in enumerate(values)))

    assert recording.steps_back() == 30
