"""Options as Spark passes them: lower-cased keys, text values."""

from __future__ import annotations

import os
import warnings

import pytest

from recordpublisher.fetcher.settings import FetcherSettings
from recordpublisher.plugins.spark.options.other_connectors import check_unknown_options
from recordpublisher.plugins.spark.options.spark_options import (
    ENDING_POSITION,
    METADATA_PROPERTIES,
    STREAMS,
    SparkOptions,
)
from recordpublisher.plugins.spark.source.task_plans import (
    count_tasks,
    count_tasks_of_batch_read,
    count_tasks_of_first_batch,
)
from recordpublisher.plugins.spark.write_options import DEAD_LETTERS, ID_FIELD, ON_FAILURE, WRITE_TASKS
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.config_fields import properties_of
from recordpublisher.publishers.properties.properties import Properties, UnknownPropertyWarning

GIVEN = {"stream": "orders", "metadatalocation": "/claims"}
CPUS = os.cpu_count() or 1


def test_lower_cased_names_are_accepted():
    options = SparkOptions.parse({**GIVEN, "shardspertask": "4", "maxrecordsperbatch": "100", "probeinterval": "50"})
    assert (options.shards_per_task, options.max_records, options.probe_ms) == (4, 100, 50)
    assert (options.streams, options.metadata_location) == (("orders",), "/claims")


@pytest.mark.parametrize(("on_loss", "accepts"), [("FAIL", False), ("continue", True)])
def test_s5_the_driver_and_the_fetchers_of_its_tasks_accept_the_same_loss(on_loss, accepts):
    options = SparkOptions.parse({**GIVEN, "flink.state.dataloss": on_loss})
    assert (options.accepts_loss, FetcherSettings.of(options.properties).accepts_loss) == (accepts, accepts)


def test_streams_are_comma_separated_names_or_arns():
    arn = "arn:aws:kinesis:eu-west-1:1:stream/clicks"
    assert SparkOptions.parse({"streams": f"orders, {arn}", "metadatalocation": "/c"}).streams == ("orders", arn)


def test_the_number_of_tasks_follows_max_tasks_or_shards_per_task():
    assert count_tasks(3, SparkOptions.parse({**GIVEN, "maxtasks": "8"})) == 3
    assert count_tasks(100, SparkOptions.parse({**GIVEN, "maxtasks": "8"})) == 8
    assert count_tasks(100, SparkOptions.parse({**GIVEN, "shardspertask": "16"})) == 7
    assert count_tasks(100, SparkOptions.parse({**GIVEN, "shardspertask": "16", "maxtasks": "2"})) == 2


@pytest.mark.parametrize(
    ("given", "shards", "tasks"),
    [
        ({}, 1, 1),
        ({}, CPUS, CPUS),
        ({}, 16 * CPUS, CPUS),
        ({}, 64 * CPUS, 4 * CPUS),
        ({"maxtasks": "3"}, 200, 3),
        ({"shardspertask": "1"}, 9, 9),
    ],
)
def test_a_batch_read_has_a_task_for_each_slot_and_more_where_each_would_have_more_than_sixteen_shards(
    given, shards, tasks
):
    assert (
        count_tasks_of_batch_read(shards, SparkOptions.parse({"stream": "orders", **given}, keeps_claims=False))
        == tasks
    )


@pytest.mark.parametrize(
    ("given", "shards", "tasks"),
    [
        ({"maxtasks": "8"}, 1, 1),
        ({"maxtasks": "8"}, 16, 1),
        ({"maxtasks": "8"}, 17, 2),
        ({"maxtasks": "8"}, 1_000, 8),
        ({"shardspertask": "1"}, 9, 9),
    ],
)
def test_the_first_batch_of_an_available_now_run_has_few_tasks(given, shards, tasks):
    assert count_tasks_of_first_batch(shards, SparkOptions.parse({**GIVEN, **given})) == tasks


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"stream": ","}, "setting 'stream' is required"),
        ({"streams": "a,a"}, "every stream once"),
        ({"metadatalocation": "dynamodb://claims", "aws.region": "us-east-1"}, "dynamodb://table/job"),
        ({"shardspertask": "0"}, "at least 1"),
        ({"maxfetchtime": "soon"}, "setting 'maxFetchTime' is 'soon'"),
    ],
)
def test_c2_bad_values_name_option_value_and_what_is_valid(changed, words):
    with pytest.raises(ConfigurationError, match=words):
        SparkOptions.parse({**GIVEN, **changed})


@pytest.mark.parametrize(
    "given",
    [
        {"mode": "Continuous"},
        {"flink.spark.mode": "CONTINUOUS"},
        {"walrollinterval": "100"},
        {"maxwalbytes": "5"},
        {"flink.spark.wal.roll.records": "7"},
    ],
)
def test_the_options_of_mode_continuous_are_refused_with_what_to_use_instead(given):
    [(key, value)] = given.items()
    words = (
        rf"'{key}' is '{value}': .*the mode CONTINUOUS,? (?:which )?no longer exists. Valid: .*BATCH.*trigger.*fan-out"
    )
    with pytest.raises(ConfigurationError, match=words):
        SparkOptions.parse({**GIVEN, **given})


def test_the_mode_that_is_left_may_be_named():
    with warnings.catch_warnings(action="error"):
        SparkOptions.parse({**GIVEN, "mode": "batch"})


def test_c2_a_missing_metadata_location_is_named():
    with pytest.raises(ConfigurationError, match=r"'metadataLocation' is required. Valid: .* 'metadataRoot'"):
        SparkOptions.parse({"stream": "orders"})


def test_load_tells_that_a_query_lacks_its_place_where_an_option_shows_that_it_is_one():
    with pytest.warns(
        UserWarning, match="'maxRecordsPerBatch' is for a query, which fails .* without 'metadataLocation'"
    ):
        SparkOptions.parse({"stream": "orders", "maxrecordsperbatch": "9"}, keeps_claims=False)
    SparkOptions.parse({"stream": "orders"}, keeps_claims=False)
    SparkOptions.parse({**GIVEN, "maxrecordsperbatch": "9"}, keeps_claims=False)


def test_a_root_of_all_queries_replaces_the_place_of_one():
    options = SparkOptions.parse({"stream": "orders", "metadataroot": "/claims", "onmetadataloss": "replay"})
    assert (options.metadata_location, options.metadata_key, options.replays_lost_claims) == (
        "/claims",
        "metadataRoot",
        True,
    )
    assert not SparkOptions.parse(GIVEN).replays_lost_claims


def test_the_drivers_environment_may_name_the_root_and_tasks_get_it_with_the_options(monkeypatch):
    monkeypatch.setenv("RECORDPUBLISHER_METADATA_ROOT", "/claims")
    options = SparkOptions.parse({"stream": "orders"})
    monkeypatch.delenv("RECORDPUBLISHER_METADATA_ROOT")
    assert (options.metadata_location, options.metadata_key) == ("/claims", "metadataRoot")


def test_a_place_among_the_options_goes_before_that_of_the_environment(monkeypatch):
    monkeypatch.setenv("RECORDPUBLISHER_METADATA_ROOT", "/of-all")
    for option in ("metadatalocation", "metadataroot"):
        assert SparkOptions.parse({"stream": "orders", option: "/own"}).metadata_location == "/own"
    assert SparkOptions.parse({"stream": "orders"}, keeps_claims=False).metadata_location == ""


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"metadataroot": "/all"}, "'metadataRoot' cannot be combined with 'metadataLocation'"),
        ({"metadataroot": "hdfs://a/b", "metadatalocation": ""}, "'metadataRoot' is .* no client of HDFS.*s3://"),
        ({"onmetadataloss": "ignore"}, "Valid: FAIL, REPLAY"),
    ],
)
def test_c2_the_place_of_claims_is_checked(changed, words):
    given = {key: value for key, value in {**GIVEN, **changed}.items() if value}
    with pytest.raises(ConfigurationError, match=words):
        SparkOptions.parse(given)


@pytest.mark.parametrize(
    ("key", "nearest"),
    [("shardpertask", "shardsPerTask"), ("maxtask", "maxTasks"), ("fetchbuffersizes", "fetchBufferSize")],
)
def test_c1_a_mistyped_option_is_refused_with_the_nearest_one_and_without_its_value(key, nearest):
    words = rf"^setting '{key}' is not accepted: there is no such option; did you mean '{nearest}'\?$"
    with pytest.raises(ConfigurationError, match=words):
        SparkOptions.parse({**GIVEN, key: "4"})


def test_c1_the_options_of_a_write_may_stand_among_those_of_a_read_and_the_other_way_round():
    written, read = (WRITE_TASKS, ID_FIELD, ON_FAILURE, DEAD_LETTERS), properties_of(SparkOptions)
    others = (*METADATA_PROPERTIES, ENDING_POSITION, STREAMS, *read)
    for ours, given in ((read, written), (written, others)):
        keys = [alias.lower() for each in given for alias in each.aliases if each not in ours]
        with pytest.warns(UnknownPropertyWarning) as told:
            check_unknown_options(Properties(dict.fromkeys(keys, "x")), ours)
        assert len(told) == len(keys)


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("kinesis.streamarn", "streamARN"),
        ("kinesis.metadatapaths", "kinesis.metadataPath"),
        ("kniesis.streamname", "kinesis.streamName"),
        ("kinesis.stream", "stream"),
    ],
)
def test_c1_a_near_miss_with_a_dot_is_refused_with_the_nearest_key(key, nearest):
    with pytest.raises(ConfigurationError, match=f"'{key}' is not accepted.*did you mean '{nearest}'"):
        SparkOptions.parse({**GIVEN, key: "x"})


def test_keys_of_another_name_space_are_left_alone():
    with warnings.catch_warnings(action="error"):
        SparkOptions.parse({**GIVEN, "my.own.key": "x"})


@pytest.mark.parametrize("key", ["retries", "flink.colour", "aws.flavour", "kinesis.colour"])
def test_c1_an_option_that_resembles_nothing_is_refused(key):
    with pytest.raises(ConfigurationError, match=f"'{key}' is not accepted: there is no such "):
        SparkOptions.parse({**GIVEN, key: "4"})


def test_c1_a_key_of_flinks_without_effect_is_a_warning_once_and_sparks_own_option_never():
    with pytest.warns(UnknownPropertyWarning, match="has no effect here: certificates are always checked") as told:
        SparkOptions.parse({**GIVEN, "aws.trust.all.certificates": "true", "checkpointlocation": "/c"})
    assert len(told) == 1


def test_load_with_a_name_is_the_stream_and_another_one_is_refused():
    rest = {key: value for key, value in GIVEN.items() if key != "stream"}
    assert SparkOptions.parse({**rest, "path": "orders"}).streams == ("orders",)
    assert SparkOptions.parse({**rest, "path": "orders,clicks"}).streams == ("orders", "clicks")
    assert SparkOptions.parse({**rest, "streams": "orders", "path": "orders"}).streams == ("orders",)
    with pytest.raises(ConfigurationError, match=r"'stream' is 'clicks': load\(\).* names 'orders'"):
        SparkOptions.parse({**rest, "streamname": "clicks", "path": "orders"})
