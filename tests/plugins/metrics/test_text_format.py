"""The page of metrics is what Prometheus's own library reads and would write."""

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from recordpublisher.fetcher.monitoring.metrics_exporter import SubtaskHealth, SubtaskMetrics
from recordpublisher.plugins.metrics.prometheus.exporter import page_of

from fakes.monitoring.measured_fetcher import METRICS, SINK


def page(metrics=METRICS, subtasks=(0, 1), health=()):
    return page_of([SubtaskMetrics(number, metrics["subtask"], metrics["shards"], SINK) for number in subtasks], health)


def samples(text):
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


class Read:
    """The families of a page, for the library to write again."""

    def __init__(self, text):
        self._families = list(text_string_to_metric_families(text))

    def collect(self):
        return self._families


def test_the_library_writes_the_same_page():
    text = page(health=[SubtaskHealth(0, True, []), SubtaskHealth(1, False, [])])
    registry = CollectorRegistry()
    registry.register(Read(text))

    assert samples(generate_latest(registry).decode()) == samples(text)
    assert [line for line in generate_latest(registry).decode().splitlines() if line.startswith("# ")] == [
        line for line in text.splitlines() if line.startswith("# ")
    ]


def test_each_shard_of_each_subtask_has_a_line_with_its_labels():
    found = samples(page())

    for subtask in "01":
        for shard in "ab":
            labels = (("shard", shard), ("stream", "s"), ("subtask", subtask))
            assert found["recordpublisher_shard_records_total", labels] == 2
        assert found["recordpublisher_subtask_records_total", (("subtask", subtask),)] == 4


def test_a_text_is_a_label():
    labels = (("shard", "a"), ("stage", "READING"), ("stream", "s"), ("subtask", "0"))

    assert samples(page())["recordpublisher_shard_stage_info", labels] == 1


def test_what_is_not_known_has_no_line():
    unknown = {**METRICS, "subtask": {**METRICS["subtask"], "globalWatermark": None}}

    assert "recordpublisher_subtask_global_watermark_timestamp_seconds{" in page()
    assert "recordpublisher_subtask_global_watermark_timestamp_seconds{" not in page(unknown)


def test_labels_are_escaped():
    odd = 'a"b\\c\nd'
    found = samples(page({**METRICS, "shards": {f"{odd}/x": METRICS["shards"]["s/a"]}}, subtasks=(0,)))

    assert ("recordpublisher_shard_records_total", (("shard", "x"), ("stream", odd), ("subtask", "0"))) in found


def test_a_subtask_that_does_not_respond_is_down():
    found = samples(page(subtasks=(), health=[SubtaskHealth(0, True, ["held"]), SubtaskHealth(1, False, [])]))

    assert found == {
        ("recordpublisher_subtask_up", (("subtask", "0"),)): 1,
        ("recordpublisher_subtask_up", (("subtask", "1"),)): 0,
        ("recordpublisher_subtask_ready", (("subtask", "0"),)): 0,
        ("recordpublisher_subtask_ready", (("subtask", "1"),)): 0,
    }


def test_the_metrics_of_a_sink_have_a_line_for_each_subtask():
    found = samples(page())

    for subtask in "01":
        assert found["recordpublisher_sink_written_records_total", (("subtask", subtask),)] == 0
        assert found["recordpublisher_sink_current_send_time_seconds", (("subtask", subtask),)] == 0
    assert "# TYPE recordpublisher_sink_outstanding_bytes gauge" in page()
    assert page().count("# TYPE recordpublisher_sink_throttles_total ") == 1
