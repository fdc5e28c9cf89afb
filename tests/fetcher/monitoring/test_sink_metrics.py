"""Metrics of a sink that fails to give them."""

import pytest

import recordpublisher as rp

from fakes.memory_streams import PROPERTIES, install
from fakes.queues.fake_queue import FakeQueue, queue_job


class Mute(rp.Sink):
    """Has no metrics yet when it is asked."""

    def __init__(self):
        self.written = []

    async def write(self, batch):
        self.written += [record.data for record in batch]

    def exported_metrics(self):
        return [rp.SinkMetric("rows", rp.MetricType.COUNTER, "Rows.", 1 / len(())), *self.written]


async def test_a_sink_whose_metrics_fail_does_not_end_the_job_and_is_named_once(monkeypatch, caplog):
    install(monkeypatch, {"a": [b"1", b"2"]})
    sink = Mute()
    async with rp.DataFetcher("orders", PROPERTIES, sink=sink) as fetcher:
        done = await fetcher.run_bounded(max_records=2)
        assert (fetcher.sink_metrics(), fetcher.sink_metrics()) == ([], [])

    assert (done.records, sink.written) == (2, [b"1", b"2"])
    [line] = [record.getMessage() for record in caplog.records if "exported_metrics" in record.getMessage()]
    assert (
        line
        == "the sink Mute exports no metrics, because its exported_metrics failed: ZeroDivisionError: division by zero"
    )


def test_nor_does_it_end_the_job_of_a_queue():
    assert queue_job(FakeQueue(), Mute()).sink_metrics() == []


@pytest.mark.parametrize("value", ["3", b"3", {"bounds": [1], "counts": [1], "sum": 1.0}])
def test_a_value_that_is_not_of_its_type_leaves_the_page_of_metrics_whole(value, caplog):
    sink = Mute()
    sink.exported_metrics = lambda: [rp.SinkMetric("rows", rp.MetricType.HISTOGRAM, "ms", "Rows.", value)]

    assert queue_job(FakeQueue(), sink).sink_metrics() == []
    assert "TypeError: the value of rows is" in caplog.text


def test_a_sink_may_export_a_histogram():
    counted = rp.Histogram([10, 100])
    counted.add(50)
    sink = Mute()
    sink.exported_metrics = lambda: [rp.SinkMetric("wait", rp.MetricType.HISTOGRAM, "ms", "Waited.", counted.value())]

    [metric] = queue_job(FakeQueue(), sink).sink_metrics()
    assert metric.value == {"bounds": [10, 100], "counts": [0, 1, 0], "sum": 50}


class Decorated(float):
    """A number as that of numpy: a float that is written in another way, and that no encoder of JSON takes."""

    def __repr__(self):
        return f"np.float64({float(self)!r})"


def test_a_number_of_another_library_is_exported_as_a_plain_one():
    sink = Mute()
    sink.exported_metrics = lambda: [rp.SinkMetric("fill", rp.MetricType.GAUGE, "", "How full.", Decorated(0.5))]

    [metric] = queue_job(FakeQueue(), sink).sink_metrics()
    assert (metric.value, type(metric.value)) == (0.5, float)


GAUGE = rp.MetricType.GAUGE


@pytest.mark.parametrize(
    "made",
    [
        ("rows per second", GAUGE, "", "Rows.", 1),
        ("rows\n# TYPE", GAUGE, "", "Rows.", 1),
        ("", GAUGE, "", "Rows.", 1),
        (None, GAUGE, "", "Rows.", 1),
        ("rows", "counts", "", "Rows.", 1),
        ("rows", rp.MetricType.TEXT, "", "Rows.", 1),
        ("rows", GAUGE, ["ms"], "Rows.", 1),
        ("rows", GAUGE, "", None, 1),
    ],
    ids=str,
)
def test_a_metric_that_no_monitoring_system_takes_leaves_the_page_of_metrics_whole(made, caplog):
    sink = Mute()
    sink.exported_metrics = lambda: [rp.SinkMetric(*made)]

    assert queue_job(FakeQueue(), sink).sink_metrics() == []
    assert "TypeError: the " in caplog.text


def test_the_type_of_a_metric_may_be_its_text():
    sink = Mute()
    sink.exported_metrics = lambda: [rp.SinkMetric("rows", "counter", "", "Rows.", 1)]

    [metric] = queue_job(FakeQueue(), sink).sink_metrics()
    assert metric.type is rp.MetricType.COUNTER


@pytest.mark.parametrize(
    ("second", "words"),
    [("cacheHits", "two metrics have the name cacheHits"), ("cache_hits", "cacheHits and cache_hits are one name")],
)
def test_two_metrics_of_one_name_are_refused(second, words, caplog):
    sink = Mute()
    sink.exported_metrics = lambda: [
        rp.SinkMetric(name, rp.MetricType.COUNTER, "hits", "Hits.", 1) for name in ("cacheHits", second)
    ]

    assert queue_job(FakeQueue(), sink).sink_metrics() == []
    assert f"{words}: give each metric a name of its own" in caplog.text
