"""When a listener deregisters the consumers of a query (F8)."""

from __future__ import annotations

import subprocess
import sys
import warnings
from types import SimpleNamespace

import pytest

from recordpublisher.local import serve_in_thread
from recordpublisher.plugins.spark.efo_consumers import deregister_consumers, register_consumers
from recordpublisher.plugins.spark.listeners import ConsumerDeregistration
from recordpublisher.publishers.errors import ConfigurationError, StreamNotFoundError, TransientError
from recordpublisher.publishers.properties.fan_out_properties import CONSUMER_NAME
from recordpublisher.publishers.properties.properties import Properties

from processes.command_line import process_environment

PROPERTIES = {"aws.region": "us-east-1", "flink.stream.efo.consumername": "mine"}

OPTIONS_OF_ANOTHER_CONNECTOR = """
from recordpublisher.local import serve_in_thread
from recordpublisher.plugins.spark.efo_consumers import consumer_properties
options = {"streamName": "orders", "consumerMode": "efo", "region": "us-east-1", "kinesis.consumerName": "mine"}
print(consumer_properties(options)["flink.stream.efo.consumername"])
"""


class Calls(list):
    """Records the calls; `failure` is raised by them."""

    failure = None

    def __call__(self, streams, properties):
        self.append(streams)
        self.properties = properties
        if self.failure is not None:
            raise self.failure


@pytest.fixture
def calls():
    return Calls()


@pytest.fixture
def listener(calls):
    return ConsumerDeregistration("orders", PROPERTIES, "to-parquet", calls)


def run(listener, name, number, *, error=None, ends=True):
    listener.onQueryStarted(SimpleNamespace(name=name, runId=number))
    if ends:
        listener.onQueryTerminated(SimpleNamespace(runId=number, exception=error))


def test_f8_a_query_that_ends_without_an_error_has_ended_for_good(listener, calls):
    run(listener, "to-parquet", 1)
    assert calls == ["orders"]


def test_f8_a_query_that_failed_is_expected_to_start_again(listener, calls):
    run(listener, "to-parquet", 1, error="java.lang.Exception: away")
    assert calls == []


def test_f8_other_queries_are_left_alone(listener, calls):
    run(listener, "other", 1)
    run(listener, None, 2)
    assert calls == []


def test_f8_another_run_that_goes_on_keeps_the_consumers(listener, calls):
    run(listener, "to-parquet", 2, ends=False)
    run(listener, "to-parquet", 1)
    assert calls == []


@pytest.mark.parametrize("key", ["consumerName", "kinesis.consumerName"])
def test_f8_the_options_of_the_query_name_the_consumer(calls, key):
    options = {"stream": "orders", "consumerMode": "efo", "region": "us-east-1", key: "mine", "maxRecordsPerBatch": 10}
    with warnings.catch_warnings(action="ignore"):
        run(ConsumerDeregistration("orders", options, "to-parquet", calls), "to-parquet", 1)
    assert (calls.properties[CONSUMER_NAME.key], calls.properties["aws.region"]) == ("mine", "us-east-1")


def test_f8_a_process_that_only_deregisters_knows_the_options_of_other_connectors():
    command = [sys.executable, "-W", "ignore", "-c", OPTIONS_OF_ANOTHER_CONNECTOR]
    done = subprocess.run(command, env=process_environment(), capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("mine", 0), done.stderr


def test_f8_an_error_of_the_calls_is_a_warning(listener, calls, caplog):
    calls.failure = TransientError("DeregisterStreamConsumer", "Unavailable", "away")
    run(listener, "to-parquet", 1)
    assert "the consumers of query to-parquet stay registered, and AWS charges for them: Deregister" in caplog.text


def test_f8_a_deleted_stream_does_not_keep_the_consumers_of_the_others():
    with serve_in_thread(streams={"orders": 1}) as served:
        properties = {**served.endpoint.properties(), CONSUMER_NAME.key: "mine"}
        register_consumers(["orders"], Properties(properties))
        with pytest.raises(StreamNotFoundError, match="deleted"):
            deregister_consumers(["deleted", "orders"], properties)
        (consumer,) = served.call(lambda: list(served.endpoint.stream("orders").consumers.all())) or [None]
    assert consumer is None or consumer.gone_from_ms is not None


def test_c2_consumer_and_query_need_names():
    for refused in (
        lambda: ConsumerDeregistration("orders", {"aws.region": "us-east-1"}, "to-parquet"),
        lambda: deregister_consumers("orders", {"aws.region": "us-east-1"}),
    ):
        with pytest.raises(ConfigurationError, match=r"flink.stream.efo.consumername.*the consumer to deregister"):
            refused()
    with pytest.raises(ConfigurationError, match="queryName"):
        ConsumerDeregistration("orders", PROPERTIES, "")
