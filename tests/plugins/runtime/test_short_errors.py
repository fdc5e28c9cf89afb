"""What a person must change is told in one sentence, also in Python."""

import asyncio
import logging
import traceback

import pytest

import recordpublisher as rp
from recordpublisher.cli.execution import one_line
from recordpublisher.local import serve_in_thread
from recordpublisher.plugins.runtime.stop_signals import SHORT_ERRORS

LINES = 15
"""Of a traceback: the calls of the user and of the public function."""


def shown(error):
    return "".join(traceback.format_exception(error))


def test_a_wrong_setting_is_told_without_the_calls_that_led_to_it():
    with pytest.raises(rp.ConfigurationError) as raised:
        rp.DataFetcher("orders", {"aws.region": "eu-west-1", "flink.stream.initpos": "SOON"})

    assert shown(raised.value).count("\n") <= LINES
    assert "direct cause" not in shown(raised.value)


def test_a_stream_that_is_missing_is_told_without_what_led_to_it(kinesis):
    kinesis.create_stream("orders", 1)
    with pytest.raises(rp.StreamNotFoundError) as raised:
        list(rp.consume("order", kinesis.properties(), stop_at_tip=True))

    assert shown(raised.value).count("\n") <= LINES
    assert "existing streams" in str(raised.value)


def test_positions_of_a_stream_that_was_made_anew_are_told_with_the_place_of_the_state(tmp_path):
    async def run(endpoint):
        given = {**endpoint.properties(), "flink.stream.initpos": "TRIM_HORIZON", "flink.state.uri": str(tmp_path)}
        async with rp.DataFetcher("orders", {**given, "flink.job.name": "job"}, sink=rp.MemorySink()) as fetcher:
            await fetcher.run_bounded(stop_at_tip=True)

    with serve_in_thread(streams={"orders": 1}) as first:
        first.stream("orders").put(b"1")
        asyncio.run(run(first))
    with serve_in_thread(streams={"orders": 1}) as second, pytest.raises(rp.FatalKinesisError) as raised:
        asyncio.run(run(second))
    assert raised.value.__notes__ == [f"the state is in {tmp_path}"]
    assert "with --data FOLDER" in str(raised.value)
    assert one_line(raised.value).endswith(f"; the state is in {tmp_path}")
    assert shown(raised.value).count("\n") <= 2 * LINES


def test_what_led_to_the_error_is_logged_for_debug(caplog):
    def fail():
        raise rp.ConfigurationError("aws.region", "mars") from KeyError("the cause")

    with caplog.at_level(logging.DEBUG, "recordpublisher"), pytest.raises(rp.ConfigurationError), SHORT_ERRORS:
        fail()

    assert "the cause" in caplog.text


@pytest.mark.parametrize(
    "given",
    [{"endpoint": "http://127.0.0.1:1", "max_outage": "1s"}, {"state_uri": "/proc/none/state"}],
    ids=["service", "store"],
)
def test_what_cannot_be_reached_is_told_without_the_calls_that_led_to_it(kinesis, given):
    kinesis.create_stream("orders", 1)
    of_kinesis = {
        key: value for key, value in kinesis.properties().items() if key != "aws.endpoint" or "endpoint" not in given
    }
    with pytest.raises((rp.RetriesExhaustedError, rp.StateError)) as raised:
        list(rp.consume("orders", of_kinesis, stop_at_tip=True, **given))

    assert shown(raised.value).count("\n") <= LINES


def test_an_error_of_a_deserializer_is_told_with_its_own_traceback_and_not_with_ours():
    def deserializer(record):
        raise KeyError("customer")

    with serve_in_thread(streams={"orders": 1}) as served:
        served.stream("orders").put(b"1")
        with pytest.raises(rp.DeserializationError) as raised:
            list(rp.consume("orders", served.properties(), stop_at_tip=True, deserializer=deserializer))

    assert "in deserializer\n" in shown(raised.value)
    assert shown(raised.value).count("\n") <= 3 * LINES


def test_an_error_in_a_module_of_the_user_keeps_its_traceback(tmp_path, monkeypatch):
    (tmp_path / "module_of_the_user.py").write_text("def handle(record):\n    pass\n\n\nlimit = 1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(rp.ConfigurationError) as raised:
        rp.DataFetcher("orders", region="eu-west-1", sink="map", sink_map_function="module_of_the_user:handle")

    assert "limit = 1 / 0" in shown(raised.value)


def test_other_errors_keep_their_causes():
    with pytest.raises(rp.SinkError) as raised, SHORT_ERRORS:
        raise rp.SinkError("it failed") from KeyError("the cause")

    assert "direct cause" in shown(raised.value)
