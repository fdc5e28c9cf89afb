"""Options of other connectors: taken with the meaning that they have there, or refused with ours by name."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from recordpublisher.plugins.spark.options import SPARK
from recordpublisher.plugins.spark.options.other_connectors import PEERS, options_with_our_keys, peer_options
from recordpublisher.plugins.spark.options.spark_options import SparkOptions
from recordpublisher.plugins.spark.read_range import ReadRange
from recordpublisher.plugins.spark.write_options import WriteOptions
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.initial_position import initial_position
from recordpublisher.publishers.positions import PositionType
from recordpublisher.publishers.properties import declaration
from recordpublisher.publishers.properties.declaration import declared_properties
from recordpublisher.publishers.properties.job_properties import ON_DATA_LOSS
from recordpublisher.publishers.properties.sink_properties import AGGREGATION_ENABLED

AWSLABS, QUBOLE, DATABRICKS, KAFKA = PEERS
KEYS = {
    AWSLABS: "awslabs-2.0.0.txt",
    QUBOLE: "qubole-1.2.0.txt",
    DATABRICKS: "databricks-19.txt",
    KAFKA: "kafka-4.1.txt",
}
"""Taken from each connector's documentation and code, in the version that its name has here; the files say from where."""
OPTIONS = [(name, option) for name, options in peer_options().items() for option in options]


def read_options(**given: str) -> SparkOptions:
    return SparkOptions.parse({"metadatalocation": "/claims", **{key.lower(): value for key, value in given.items()}})


def keys_of(name: str) -> list[str]:
    lines = (Path(__file__).parent / "keys" / KEYS[name]).read_text().splitlines()
    return [line.split()[0].lower() for line in lines if not line.startswith("#")]


@pytest.mark.parametrize("name", PEERS)
def test_every_documented_key_is_in_the_table(name):
    assert sorted(option.key.lower() for option in PEERS[name]) == sorted(keys_of(name))


@pytest.mark.parametrize(("name", "option"), OPTIONS, ids=lambda each: getattr(each, "key", each))
def test_every_option_is_a_declared_property_of_ours_or_is_refused_with_a_reason(name, option):
    declared = {each.key for each in declared_properties()}
    assert {option.ours, *option.also} <= declared if option.ours else option.refused
    assert bool(option.ours) != bool(option.refused)


def test_all_refused_options_are_named_at_once():
    with pytest.raises(
        ConfigurationError, match=r"'assign'.*use 'streams'; also 'fetchBufferSize': nothing is fetched ahead"
    ):
        options_with_our_keys({"stream": "orders", "assign": "{}", "fetchBufferSize": "7"}, ())


@pytest.mark.parametrize("option", [option for _, option in OPTIONS if option.refused], ids=lambda each: each.key)
def test_a_refused_option_is_an_error_with_its_reason(option):
    with pytest.raises(ConfigurationError) as raised:
        options_with_our_keys({option.key.lower(): "1"}, ())
    assert (raised.value.key, raised.value.reason) == (option.key, option.refused)


@pytest.mark.parametrize("key", ["kinesis.sessionToken", "sessionToken"])
def test_a_session_token_goes_with_the_keys(key):
    given = {"stream": "s", "failOnDataLoss": "true", key: "t"}
    token = read_options(**given).properties["aws.credentials.provider.basic.sessiontoken"]
    assert token == "t"


@pytest.mark.parametrize("key", ["subscribePattern", "topic", "consumerNamePrefix", "kinesis.checkNewRecordThreads"])
def test_an_option_of_ours_wins_over_an_option_of_another_connector_with_its_name(monkeypatch, key):
    monkeypatch.setattr(declaration, "_declared", dict(declaration._declared))
    SPARK.text("flink.spark.of.a.test", "An option that a later version has.", aliases=(key,))
    assert options_with_our_keys({"stream": "orders", key: "7"}, ())[key] == "7"
    assert key not in {option.key for options in peer_options().values() for option in options if option.refused}


def test_a_key_of_two_connectors_means_the_same_in_both():
    first = {option.key.lower(): option for _, option in OPTIONS}
    assert [
        each
        for _, each in OPTIONS
        if (first[each.key.lower()].ours, first[each.key.lower()].values) != (each.ours, each.values)
    ] == []


def test_a_job_of_awslabs_reads_what_it_read_there():
    options = SparkOptions.parse(
        {
            "metadatalocation": "/claims",
            "kinesis.streamname": "orders",
            "kinesis.endpointurl": "https://kinesis.us-east-2.amazonaws.com",
            "kinesis.consumertype": "SubscribeToShard",
            "kinesis.consumername": "reports",
            "kinesis.startingposition": "AT_TIMESTAMP 2023-08-30T19:00:05-08:00",
            "kinesis.failondataloss": "false",
            "kinesis.maxfetchtimepershardsec": "10",
            "kinesis.describeshardinterval": "50s",
            "kinesis.stsrolearn": "arn:aws:iam::1:role/r",
        }
    )
    assert (options.streams, options.publisher, options.window_ms) == (("orders",), "EFO", 10_000)
    start = initial_position(options.properties)
    assert (start.type, start.timestamp_ms) == (PositionType.AT_TIMESTAMP, 1_693_450_805_000)
    expected = {
        "aws.region": "us-east-2",
        "flink.stream.efo.consumername": "reports",
        "flink.state.dataloss": "CONTINUE",
        "flink.shard.discovery.intervalmillis": "50s",
        "aws.credentials.provider": "ASSUME_ROLE",
    }
    assert {key: options.properties[key] for key in expected} == expected


def test_a_job_of_databricks_reads_its_streams_from_where_it_did():
    options = read_options(
        streamName="orders,clicks", initialPosition="earliest", consumerMode="polling", shardsPerTask="5"
    )
    assert (options.streams, options.publisher, options.shards_per_task) == (("orders", "clicks"), "POLLING", 5)
    assert initial_position(options.properties).type is PositionType.TRIM_HORIZON


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"initialPosition": "SOON"},
            r"Valid: TRIM_HORIZON .or earliest., in a query LATEST, .AT_TIMESTAMP <time>., a time, an age such as 1h, or JSON by shard",
        ),
        (
            {"initialPosition": "AT_TIMESTAMP"},
            "'initialPosition' is 'AT_TIMESTAMP': flink.stream.initpos.timestamp, which says the time, is not set",
        ),
        (
            {"startingPosition": "2026-11-25 10:00", "flink.stream.initpos": "TRIM_HORIZON"},
            "'startingPosition' is '2026-11-25 10:00': it has no zone; write 2026-11-25T10:00:00Z for UTC",
        ),
        (
            {"startingPosition": "2026-11-25T10:00Z", "flink.stream.initpos": "TRIM_HORIZON"},
            "'startingPosition=2026-11-25T10:00Z' cannot be combined with 'flink.stream.initpos=TRIM_HORIZON'",
        ),
        (
            {"initialPosition": "AT_TIMESTAMP 2026-11-25"},
            "'initialPosition' is .*: it has no zone; write 2026-11-25T00:00:00Z for UTC",
        ),
        (
            {"kinesis.consumerType": "Push"},
            "'kinesis.consumerType' is 'Push'. Valid: getrecords, subscribetoshard",
        ),
        (
            {"kinesis.maxFetchTimePerShardSec": "soon"},
            "'kinesis.maxFetchTimePerShardSec' is 'soon'. Valid: a whole number",
        ),
        (
            {"failOnDataLoss": "true", "flink.state.dataloss": "CONTINUE"},
            "'failOnDataLoss=true' cannot be combined with 'flink.state.dataloss=CONTINUE'",
        ),
        (
            {"consumerMode": "efo", "kinesis.consumerType": "GetRecords"},
            "'kinesis.consumerType=GetRecords' cannot be combined with 'consumerMode=EFO'",
        ),
        (
            {"stream": "orders", "streamName": "clicks"},
            "'streamName=clicks' cannot be combined with 'stream=orders'",
        ),
        ({"streams": "orders,clicks", "stream": "orders"}, "cannot be combined with 'stream=orders'"),
    ],
)
def test_wrong_values_and_two_values_of_one_property_are_errors(given, words):
    with pytest.raises(ConfigurationError, match=words):
        read_options(**{"stream": "orders", **given} if "streamName" not in given else given)


def test_two_spellings_with_one_value_are_no_error():
    given = {"stream": "orders", "streamName": "orders", "maxFetchDuration": "10s", "maxFetchTime": "10000"}
    assert read_options(**given).window_ms == 10_000


def test_errors_do_not_show_secrets():
    with pytest.raises(ConfigurationError) as raised:
        read_options(
            stream="orders", awsAccessKey="AKIAONE", **{"aws.credentials.provider.basic.accesskeyid": "AKIATWO"}
        )
    assert "AKIA" not in str(raised.value)


@pytest.mark.parametrize(
    ("parse", "given", "key", "ours"),
    [
        (
            SparkOptions.parse,
            {"kinesis.streamname": "orders", "metadatalocation": "/c"},
            "kinesis.failOnDataLoss",
            ON_DATA_LOSS.key,
        ),
        (
            WriteOptions.parse,
            {"kinesis.streamname": "orders"},
            "kinesis.sink.aggregationEnabled",
            AGGREGATION_ENABLED.key,
        ),
    ],
)
def test_a_default_that_differs_is_named_with_ours_unless_the_option_is_set(parse, given, key, ours):
    with pytest.warns(UserWarning, match=rf"'{key}' is \w+ by default in awslabs .* here '{ours}' is"):
        parse(given)
    with warnings.catch_warnings(action="error"):
        parse({**given, key.lower(): "true"})


def test_our_own_options_warn_of_nothing():
    with warnings.catch_warnings(action="error"):
        read_options(stream="orders", maxFetchTime="2s")


def test_deregistration_by_the_query_is_refused_with_the_listener_and_without_it_nothing_is_deregistered():
    options = read_options(streamName="orders", requireConsumerDeregistration="false")
    assert options.properties["flink.stream.efo.deregister"] == "NEVER"
    with pytest.raises(ConfigurationError, match=r"'requireConsumerDeregistration' .*rp.spark.ConsumerDeregistration"):
        read_options(streamName="orders", requireConsumerDeregistration="true")


def test_the_options_of_databricks_that_came_later_mean_what_they_mean_there():
    given = {"endpoint": "kinesis.us-west-2.amazonaws.com", "minFetchPeriod": "400ms", "maxPartitions": "16"}
    options = read_options(streamName="orders", **given)
    assert options.properties["aws.endpoint"] == "https://kinesis.us-west-2.amazonaws.com"
    assert options.properties["aws.region"] == "us-west-2"
    assert options.properties["flink.shard.getrecords.intervalmillis"] == "400ms"
    assert options.max_tasks == 16


@pytest.mark.parametrize("key", ["stsEndpoint", "kinesis.stsEndpointUrl"])
def test_a_host_without_a_scheme_is_an_endpoint_of_sts_too(key):
    given = {"streamName": "orders", "failOnDataLoss": "true", key: "sts.us-east-1.amazonaws.com"}
    found = read_options(**given).properties["aws.credentials.provider.role.stsendpoint"]
    assert found == "https://sts.us-east-1.amazonaws.com"


CONSUMER = {"streamName": "orders", "consumerMode": "efo", "consumerName": "reports"}


@pytest.mark.parametrize("prefix", ["databricks_", "prod-", ""])
def test_a_prefix_comes_before_the_consumers_name_and_nothing_is_warned_of(prefix):
    with warnings.catch_warnings(action="error"):
        options = read_options(**CONSUMER, consumerNamePrefix=prefix)
    assert options.properties["flink.stream.efo.consumername"] == f"{prefix}reports"


def test_without_the_prefix_a_warning_names_both_consumers():
    with pytest.warns(
        UserWarning, match="'consumerNamePrefix' is databricks_ .* is reports and not databricks_reports"
    ):
        options = read_options(**CONSUMER)
    assert options.properties["flink.stream.efo.consumername"] == "reports"


def test_who_only_guessed_the_names_of_the_consumers_options_is_not_warned_of_a_prefix():
    with warnings.catch_warnings(action="error"):
        options = read_options(stream="orders", consumerMode="efo", consumerName="reports")
    assert options.properties["flink.stream.efo.consumername"] == "reports"


def test_a_prefix_without_a_name_is_an_error_since_a_query_has_no_id_here():
    with pytest.raises(
        ConfigurationError, match=r"'consumerNamePrefix' is .* the value of 'consumerName', which is not"
    ):
        read_options(streamName="orders", consumerNamePrefix="prod-")


def test_a_job_of_kafka_reads_its_topics_from_where_it_did():
    options = read_options(subscribe="orders,clicks", startingOffsets="earliest", maxOffsetsPerTrigger="100")
    assert (options.streams, options.max_records) == (("orders", "clicks"), 100)
    assert initial_position(options.properties).type is PositionType.TRIM_HORIZON


def test_times_of_a_job_of_kafka_are_epoch_milliseconds_as_there():
    given = {"startingTimestamp": "1693450805123", "endingTimestamp": "1693450806123"}
    options = read_options(subscribe="orders", **given)
    positions = ReadRange.parse(options.properties, options.streams, 0)
    assert (positions.starts.default.timestamp_ms, positions.end.arrival_ms) == (1_693_450_805_123, 1_693_450_806_123)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"startingOffsets": '{"orders":{"0":23}}'}, "use 'startingPosition' and 'endingPosition'"),
        ({"endingOffsets": "earliest"}, "'endingOffsets' is 'earliest': .*. Valid: latest"),
        (
            {"startingTimestamp": "1693450805"},
            "'startingTimestamp' is '1693450805': it is 1970-01-20T14:24:10.805Z; these may be seconds: "
            "write 1693450805000",
        ),
        ({"startingTimestamp": "yesterday"}, "'startingTimestamp' is 'yesterday'. Valid: epoch ms"),
        (
            {"startingOffsets": "earliest", "startingTimestamp": "0"},
            "'starting.*' cannot be combined with 'starting",
        ),
        ({"startingOffsets": "earliest", "startingPosition": "LATEST"}, "cannot be combined with"),
        ({"SubscribePattern": "o.*"}, "'subscribePattern' .*use 'streams'"),
        ({"kafka.Bootstrap.servers": "host:9092"}, "'kafka.bootstrap.servers' .*this is not Kafka"),
    ],
)
def test_what_a_job_of_kafka_means_otherwise_is_refused_by_name(given, words):
    with pytest.raises(ConfigurationError, match=words):
        read_options(stream="orders", **given)


def test_the_time_of_databricks_is_taken_and_one_in_a_format_of_its_own_gets_the_line_to_write():
    given = read_options(stream="orders", initialPosition='{"at_timestamp": "2026-03-01T00:00:00Z"}')
    assert given.properties["flink.stream.initpos"] == "2026-03-01T00:00:00.000Z"
    other = '{"at_timestamp": "06/25/2020 10:23:45 PDT", "format": "MM/dd/yyyy HH:mm:ss ZZZ"}'
    with pytest.raises(ConfigurationError, match=r"Valid: \.option\('initialPosition', 'AT_TIMESTAMP 2026-"):
        read_options(stream="orders", initialPosition=other)


@pytest.mark.parametrize("key", ["initialPosition", "startingPosition"])
def test_the_time_of_a_start_may_be_an_option_of_its_own(key):
    given = {key: "at_timestamp", "flink.stream.initpos.timestamp": "2026-03-01T00:00:00Z"}
    start = initial_position(read_options(stream="orders", **given).properties)
    assert start.timestamp_ms == 1_772_323_200_000
