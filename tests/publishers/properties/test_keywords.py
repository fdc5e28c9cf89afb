"""Properties as keyword arguments: the names come from the table, and a contradiction is an error that names both (C1, C2)."""

import importlib.util
import subprocess
import sys
from datetime import timedelta

import pytest

from recordpublisher import ConfigurationError, JobSettings, Properties, Settings
from recordpublisher.plugins.host.build_from_properties import dead_letter_properties
from recordpublisher.publishers.properties.properties import properties_by_keyword

from processes.command_line import ROOT, process_environment


def generator():
    spec = importlib.util.spec_from_file_location("generate_settings", ROOT / "docs/generate_settings.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_typed_keywords_are_those_of_the_table():
    made = generator()

    assert made.FILE.read_text() == made.content(), "run `make docs`"
    assert set(Settings.__annotations__) == set(properties_by_keyword())
    assert set(Settings.__annotations__) - set(JobSettings.__annotations__) == made.ARGUMENTS


def test_type_checkers_read_the_public_names():
    made = generator()

    assert made.STUB.read_text() == made.stub(), "run `make docs`"


def test_every_property_of_the_table_has_a_keyword_of_its_own():
    script = """
from recordpublisher.publishers.properties.properties import properties_by_keyword
from recordpublisher.publishers.properties.properties import declared_properties
with_keyword = list(properties_by_keyword().values())
print(*(one.key for one in declared_properties() if not one.is_prefix and one not in with_keyword))
"""
    without = subprocess.run(
        [sys.executable, "-c", script], env=process_environment(), capture_output=True, text=True, check=True
    )  # in a process of its own: other tests declare properties

    assert without.stdout.split() == []


def test_keywords_give_properties():
    given = Properties({"my.own.key": 1}, region="eu-west-1", start="LATEST", publisher="EFO", consumer_name="x")

    assert given == {
        "my.own.key": "1",
        "aws.region": "eu-west-1",
        "flink.stream.initpos": "LATEST",
        "flink.stream.recordpublisher": "EFO",
        "flink.stream.efo.consumername": "x",
    }


@pytest.mark.parametrize(
    ("short", "from_key"),
    [
        ("start", "stream_initpos"),
        ("start_timestamp", "stream_initpos_timestamp"),
        ("publisher", "stream_recordpublisher"),
        ("consumer_name", "stream_efo_consumername"),
    ],
)
def test_the_keyword_that_is_made_from_the_key_is_accepted_beside_a_short_one(short, from_key):
    assert Properties(**{short: "x"}) == Properties(**{from_key: "x"})


def test_two_keywords_of_one_property_that_differ_are_an_error():
    with pytest.raises(ConfigurationError, match=r"flink\.stream\.initpos.*'stream_initpos=LATEST'"):
        Properties(start="TRIM_HORIZON", stream_initpos="LATEST")


def test_each_setting_of_a_sink_is_one_of_the_dead_letter_sink_too():
    of_sinks = [name for name, each in properties_by_keyword().items() if each.key.startswith("flink.sink.")]
    assert {"sink_jsonl_path", "sink_sql_uri", "sink_kinesis_stream"} <= set(of_sinks)
    for name in of_sinks:
        if name.startswith("sink_"):
            assert name.replace("sink_", "deadletter_", 1) in properties_by_keyword()
    given = Properties(deadletter_sink="jsonl", deadletter_jsonl_path="dl")
    assert given == {"flink.deadletter.sink": "jsonl", "flink.deadletter.jsonl.path": "dl"}
    assert dead_letter_properties(given)["flink.sink.jsonl.path"] == "dl"


def test_a_keyword_that_is_none_is_not_given():
    assert Properties(region=None) == {}


def test_a_keyword_and_an_equal_property_agree():
    assert Properties({"aws.request.timeout": "10s"}, request_timeout="10000ms")["aws.request.timeout"] == "10000ms"


@pytest.mark.parametrize(
    ("given", "settings", "merged"),
    [
        ({"aws.region": "us-east-1"}, {"region": "eu-west-1"}, {"aws.region": "eu-west-1"}),
        ({"FLINK.stream.initpos": "LATEST"}, {"start": "TRIM_HORIZON"}, {"flink.stream.initpos": "TRIM_HORIZON"}),
        (
            {"flink.stream.efo.registrar": "EAGER"},
            {"stream_efo_registration": "LAZY"},
            {"flink.stream.efo.registration": "LAZY"},
        ),
        ({"aws.region": "us-east-1"}, {"region": None}, {"aws.region": "us-east-1"}),
    ],
)
def test_a_keyword_takes_precedence_over_every_spelling_of_its_property(given, settings, merged):
    assert dict(Properties(given, **settings)) == merged


def test_two_keywords_that_contradict_each_other_are_an_error_that_names_both():
    with pytest.raises(ConfigurationError, match="cannot be combined with") as raised:
        Properties(start="LATEST", stream_initpos="TRIM_HORIZON")

    parts = ["'flink.stream.initpos=", "=LATEST'", "'stream_initpos=", "=TRIM_HORIZON'"]
    assert [part for part in parts if part not in str(raised.value)] == []


@pytest.mark.parametrize(
    ("settings", "ms"),
    [
        ({"max_outage": 30}, 30_000),
        ({"max_outage": 0.5}, 500),
        ({"lease_duration": "20s"}, 20_000),
        ({"state_checkpoint_interval": -1}, -1),
        ({"shard_getrecords_intervalmillis": 250}, 250),
        ({"queue_wait": 5}, 5_000),
    ],
)
def test_a_number_that_is_a_duration_is_in_seconds_unless_its_keyword_says_millis(settings, ms):
    declared = properties_by_keyword()[next(iter(settings))]
    assert Properties(**settings).value(declared) * (1 if declared.unit == "ms" else 1_000) == ms


@pytest.mark.parametrize("keyword", ["max_outage", "queue_visibility_timeout"])
def test_a_number_of_a_thousand_seconds_is_refused_because_milliseconds_may_be_meant(keyword):
    with pytest.raises(ConfigurationError, match=f"'{keyword}'.* is in seconds; write '30000s' or '30000ms'"):
        Properties(**{keyword: 30_000})


@pytest.mark.parametrize("value", ["30", "30000"])
def test_a_text_without_a_unit_is_refused_as_a_duration(value):
    """A property in a file would have it in ms, and a number in Python in seconds."""
    with pytest.raises(ConfigurationError, match=r"'max_outage' is '30.*': a text needs a unit"):
        Properties(max_outage=value)


@pytest.mark.parametrize("value", [-5, float("inf"), float("nan"), True])
def test_a_number_that_is_no_duration_is_refused_as_it_was_given(value):
    with pytest.raises(ConfigurationError, match=f"is '?{str(value).lower()}s?'?"):
        Properties(max_outage=value).check()


def test_a_duration_may_be_a_timedelta():
    given = Properties(request_timeout=timedelta(seconds=1.5), start=timedelta(hours=1))
    assert (given["aws.request.timeout"], given["flink.stream.initpos"]) == ("1500ms", "3600000ms")


@pytest.mark.parametrize(
    ("keyword", "nearest"),
    [
        ("regoin", "region"),
        ("initpos", "start"),
        ("region_name", "region"),
        ("endpoint_url", "endpoint"),
        ("group_id", "job_name"),
        ("initial_position", "start"),
        ("bootstrap_servers", "region"),
        ("aws_access_key_id", "credentials_provider_basic_accesskeyid"),
        ("access_key_id", "credentials_provider_basic_accesskeyid"),
        ("session_token", "credentials_provider_basic_sessiontoken"),
        ("aws_region", "region"),
        ("flink_job_name", "job_name"),
        ("zzz", None),
        ("begin", None),
        ("columns", None),
        ("consumername", "consumer_name"),
    ],
)
def test_an_unknown_keyword_is_an_error_with_the_nearest_one(keyword, nearest):
    with pytest.raises(ConfigurationError, match=f"'{keyword}'.*a key of `recordpublisher properties` ") as raised:
        Properties(**{keyword: "x"})

    assert ("did you mean" in str(raised.value)) == bool(nearest)
    assert f"'{nearest or keyword}'" in str(raised.value)
