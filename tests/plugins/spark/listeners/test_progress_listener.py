"""The figures of queries on the page that Prometheus reads."""

from __future__ import annotations

import json
from types import SimpleNamespace
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from recordpublisher.plugins.metrics.prometheus.exporter import host_and_port
from recordpublisher.plugins.spark.listeners import ProgressListener, page_of_queries
from recordpublisher.publishers.errors import ConfigurationError

FIGURES = {"batch": 7, "globalWatermark": None, "records": 12, "millisBehindLatest": 1500}


def samples(page):
    families = text_string_to_metric_families(page)
    return {(sample.name, sample.labels["query"]): sample.value for family in families for sample in family.samples}


def progress_of(name, *offsets, run=1):
    sources = [SimpleNamespace(latestOffset=None if each is None else json.dumps(each)) for each in offsets]
    progress = SimpleNamespace(
        name=name, id="id-1", runId=run, sources=sources, inputRowsPerSecond=2.5, batchDuration=250
    )
    return SimpleNamespace(progress=progress)


@pytest.fixture
def listener():
    made = ProgressListener("127.0.0.1:0")
    yield made
    made.close()


def read(listener):
    with urlopen(listener.url) as page:
        return samples(page.read().decode())


def test_figures_are_in_base_units_and_unknown_ones_have_no_line(listener):
    listener.onQueryProgress(progress_of("orders", {"offset": 5}, FIGURES, None))
    found = read(listener)
    assert found["recordpublisher_spark_records_total", "orders"] == 12
    assert found["recordpublisher_spark_behind_latest_seconds", "orders"] == 1.5
    assert found["recordpublisher_spark_batch_duration_seconds", "orders"] == 0.25
    assert found["recordpublisher_spark_outage", "orders"] == 0
    assert not [name for name, _ in found if "watermark" in name]


def test_spark_4_0_and_4_1_show_an_offset_that_carries_the_figures(listener):
    listener.onQueryProgress(progress_of("orders", {"plan": "a", "batch": 8, "globalWatermark": 1, "figures": FIGURES}))
    assert read(listener)["recordpublisher_spark_records_total", "orders"] == 12


def test_a_query_without_a_name_has_its_id_and_one_that_ended_is_gone(listener):
    listener.onQueryProgress(progress_of(None, {**FIGURES, "outage": {"service": "Kinesis"}}))
    assert read(listener)["recordpublisher_spark_outage", "id-1"] == 1
    listener.onQueryTerminated(SimpleNamespace(runId=1, exception=None))
    assert read(listener) == {}


def test_while_no_batches_run_the_figures_are_those_of_the_query(listener):
    listener.onQueryIdle(SimpleNamespace(id="id-1"))
    shown = progress_of("orders", {**FIGURES, "records": 20}).progress
    running = {"id-1": SimpleNamespace(lastProgress=shown), "id-2": SimpleNamespace(lastProgress=None)}
    listener.spark = SimpleNamespace(streams=SimpleNamespace(get=running.get))
    for query in ("id-1", "id-2", "of another Spark"):
        listener.onQueryIdle(SimpleNamespace(id=query))
    assert read(listener)["recordpublisher_spark_records_total", "orders"] == 20


def test_warnings_of_a_query_are_logged_in_this_process_once_a_run(listener, caplog):
    warned = {**FIGURES, "warnings": ["unknown option 'maxtask' is ignored"]}
    for run, found in (
        (1, warned),
        (1, warned),
        (1, {**warned, "warnings": [*warned["warnings"], "slow"]}),
        (2, warned),
    ):
        listener.onQueryProgress(progress_of("orders", found, run=run))
    texts = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    unknown = "query orders: unknown option 'maxtask' is ignored"
    assert texts == [unknown, "query orders: slow", unknown]


def test_queries_over_other_sources_are_left_out(listener):
    listener.onQueryProgress(progress_of("rates", {"offset": 5}, 12, None))
    assert read(listener) == {}


def test_c2_an_address_that_is_taken_is_named(listener):
    address = listener.url.removeprefix("http://").removesuffix("/metrics")
    with pytest.raises(ConfigurationError, match=rf"prometheus.address' is '{address}'"):
        ProgressListener(address)


def test_a_name_with_quotes_is_escaped():
    assert samples(page_of_queries([('a"b\\', [FIGURES])]))["recordpublisher_spark_batch", 'a"b\\'] == 7


def test_the_default_address_has_one_port():
    """The address of a job's pages may be a range of ports, which a listener does not take."""
    (default,) = ProgressListener.__init__.__defaults__

    assert host_and_port(default) == ("127.0.0.1", 9249)
