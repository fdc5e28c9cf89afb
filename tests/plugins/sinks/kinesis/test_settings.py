import pytest

from recordpublisher.local import serve_in_thread
from recordpublisher.plugins.host.plugin_loading import load_registry
from recordpublisher.plugins.sinks.kinesis import KinesisSink, Producer
from recordpublisher.plugins.sinks.kinesis.sink_settings import KinesisSinkSettings
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.properties import Properties


def settings(given=None, **arguments):
    return KinesisSinkSettings.of(Properties(given or {}), **arguments)


def test_defaults():
    made = settings()
    assert made.queue_limit is None
    assert made.wait_seconds == made.linger_seconds == 0.1
    assert (made.request_count, made.records_per_second, made.bytes_per_second) == (500, 1_000, 2**20)
    assert made.fails_on_error
    assert not made.keeps_key_order
    assert not made.aggregates


def test_arguments_override_properties():
    given = {"flink.sink.kinesis.queue.limit": "5", "flink.sink.kinesis.ordering": "per_key"}
    made = settings(given, queue_limit=7, ordering="NONE", fail_on_error=False)
    assert (made.queue_limit, made.keeps_key_order, made.fails_on_error) == (7, False, False)
    assert settings(given).queue_limit == 5
    assert settings(given).keeps_key_order


def test_the_keys_of_the_kpl_and_flinks_old_ones_are_accepted():
    made = settings({"aws.producer.collectionMaxCount": 50, "AggregationMaxCount": 9, "RateLimit": 150})
    assert (made.request_count, made.aggregate_count, made.records_per_second) == (50, 9, 1_500)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("flink.sink.kinesis.queue.limit", 0),
        ("flink.sink.kinesis.ordering", "TOTAL"),
        ("CollectionMaxCount", 501),
        ("CollectionMaxSize", 10 * 2**20 + 1),
        ("flink.job.max.outage", -1),
    ],
)
def test_c2_a_bad_value_names_its_key(key, value):
    with pytest.raises(ConfigurationError, match=key.replace(".", r"\.")):
        settings({key: value})


def test_c2_an_unknown_ordering_is_named():
    with pytest.raises(ConfigurationError, match="NONE, PER_KEY"):
        settings(ordering="BY_TIME")


def test_built_from_properties_the_stream_is_a_property():
    KinesisSink({"flink.sink.kinesis.stream": "out", "aws.region": "eu-west-1"})
    with pytest.raises(ConfigurationError, match=r"flink\.sink\.kinesis\.stream"):
        KinesisSink({"aws.region": "eu-west-1"})


def test_c2_a_producer_warns_once_of_a_key_that_no_plugin_has(caplog):
    with serve_in_thread(streams={"out": 1}) as served:
        unknown = {**served.properties(), "flink.sink.nowhere.place": "1"}
        with Producer("out", unknown) as producer:
            producer.put(b"1", "k")

    assert caplog.messages == ["unknown property 'flink.sink.nowhere.place': nothing that is installed declares it"]


def test_c2_a_misspelt_key_next_to_the_stream_in_a_mapping_is_an_error_of_a_producer():
    given = {"flink.sink.kinesis.stream": "out", "flink.sink.kinesis.orderin": "NONE", "aws.region": "us-east-1"}
    with pytest.raises(ConfigurationError, match=r"flink\.sink\.kinesis\.ordering"):
        Producer(given)


def test_c2_an_unknown_key_of_a_sink_on_its_own_is_an_error():
    with pytest.raises(ConfigurationError, match=r"'region' .*; did you mean 'aws\.region'"):
        KinesisSink("out", {"region": "eu-west-1", "aws.region": "eu-west-1"})


@pytest.mark.parametrize("made", [KinesisSink, Producer])
@pytest.mark.parametrize("stream", [["out"], None, 5, "http://127.0.0.1:4567/orders", "an order"])
def test_c2_what_is_not_a_stream_is_named(made, stream):
    with pytest.raises(ConfigurationError, match=r"setting 'stream' .* Valid: the name or ARN of a stream"):
        made(stream, {"aws.region": "eu-west-1"})


@pytest.mark.parametrize("made", [KinesisSink, Producer])
def test_a_setting_is_also_a_keyword_argument_which_overrides_its_property(made):
    given = {"aws.region": "eu-west-1", "flink.sink.kinesis.queue.limit": 5}
    sink = made("out", given, sink_kinesis_queue_limit=7, max_outage="20s")
    assert sink.metrics()["queueLimit"] == 7
    with pytest.raises(ConfigurationError, match=r"flink\.job\.max\.outage"):
        made("out", given, max_outage="soon")


@pytest.mark.parametrize("made", [KinesisSink, Producer])
@pytest.mark.parametrize(("keyword", "meant"), [("regoin", "region"), ("queue_limt", "queue_limit")])
def test_c2_an_unknown_keyword_argument_is_an_error_with_the_one_that_was_meant(made, keyword, meant):
    with pytest.raises(ConfigurationError, match=f"'{keyword}' .*did you mean '{meant}'"):
        made("out", **{keyword: 5})


def test_it_is_registered_by_name():
    assert load_registry().sinks.get("Kinesis", "a key") is KinesisSink
