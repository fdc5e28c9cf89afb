"""Every property of a time or a size takes a unit, and its errors say so."""

import pytest

import recordpublisher.plugins.spark.options.spark_options
import recordpublisher.plugins.spark.write_options  # noqa: F401 - declares properties, as `options` does
from recordpublisher.plugins.host.plugin_loading import load_registry
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties import declaration
from recordpublisher.publishers.properties.declaration import declared_properties
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.times_and_sizes import parse_with_unit

load_registry()
NUMBERS = [each for each in declared_properties() if each.type_name in ("int", "double")]


@pytest.mark.parametrize(
    ("given", "unit", "value"),
    [
        ("10s", "ms", 10_000),
        ("5 minutes", "ms", 300_000),
        ("1.5 h", "ms", 5_400_000),
        ("2D", "s", 172_800),
        ("250 ms", "ms", 250),
        ("2000ms", "s", 2),
        ("64mb", "bytes", 64 * 2**20),
        ("1 GiB", "bytes", 2**30),
        ("0.5k", "bytes", 512),
    ],
)
def test_a_number_with_a_unit_is_converted_to_that_of_the_property(given, unit, value):
    assert parse_with_unit(given, unit) == value


@pytest.mark.parametrize(
    ("given", "unit"),
    [
        ("10", "ms"),
        ("10 parsecs", "ms"),
        ("10 mb", "ms"),
        ("10 s", "bytes"),
        ("500ms", "s"),
        ("-1s", "ms"),
        ("1_0s", "ms"),
        ("\u0661s", "ms"),
        ("10s", "records"),
        ("s", "ms"),
        ("1e3s", "ms"),
    ],
)
def test_anything_else_is_not(given, unit):
    assert parse_with_unit(given, unit) is None


@pytest.mark.parametrize("declared", [each for each in NUMBERS if each.unit in ("ms", "s")], ids=lambda each: each.key)
def test_every_property_of_a_time_takes_a_duration(declared):
    seconds = {"ms": 5_000, "s": 5}[declared.unit]
    assert Properties({declared.key: "5 seconds"}).value(declared) == seconds


@pytest.mark.parametrize("declared", [each for each in NUMBERS if each.unit == "bytes"], ids=lambda each: each.key)
def test_every_property_of_a_size_takes_one(declared):
    assert Properties({declared.key: "64kb"}).value(declared) == 64 * 1024


def test_every_property_that_is_named_by_a_time_or_a_size_has_its_unit():
    words = ("millis", "interval", "timeout", "backoff.base", "backoff.max", "bytes", "maxsize")
    named = [each for each in NUMBERS if each.key.lower().endswith(words)]
    assert [each.key for each in named if each.unit not in ("ms", "s", "bytes")] == []


def test_the_range_is_that_of_the_converted_value_and_the_error_names_both_spellings():
    key = "flink.spark.window.millis"
    declared = next(each for each in NUMBERS if each.key == key)
    with pytest.raises(ConfigurationError, match="a whole number of at least 10 ms, or a duration such as 10s"):
        Properties({key: "5ms"}).value(declared)


def test_a_bare_time_is_in_ms_but_for_what_flink_or_the_queues_api_counts_in_seconds():
    in_seconds = {each.key for each in NUMBERS if each.unit == "s" and not each.key.startswith("flink.queue.")}
    assert in_seconds == {
        "flink.stream.registerstreamconsumer.timeout",
        "flink.stream.deregisterstreamconsumer.timeout",
        "flink.shard.subscribetoshard.timeout",
    }


@pytest.mark.parametrize("declared", [each for each in NUMBERS if each.unit], ids=lambda each: each.key)
def test_what_is_valid_names_the_unit(declared):
    told = declared.valid.partition(",")[0]

    assert f" {declared.unit}" in told or told.endswith(f" 1 {declaration.unit_after(1, declared.unit)}")


SECONDS_ARE_USUAL = [
    "flink.job.max.outage",
    "flink.job.drain.timeout",
    "flink.alarm.interval",
    "flink.watermark.future.limit",
    "flink.watermark.alignment.max.lag",
    "flink.shard.idle.interval",
    "flink.watermark.tracker.timeout",
    "flink.lease.duration",
    "flink.metrics.interval",
    "flink.sink.map.retry.for",
    "flink.sink.map.timeout",
    "flink.sink.map.max.age",
    "aws.request.timeout",
]


@pytest.mark.parametrize("key", SECONDS_ARE_USUAL)
@pytest.mark.parametrize("given", [30, "900", 1])
def test_a_small_number_without_a_unit_is_refused_where_seconds_are_usual(key, given):
    declared = next(each for each in NUMBERS if each.key == key)
    with pytest.raises(ConfigurationError, match=f"without a unit is in ms; write '{given}s' or '{given}ms'"):
        Properties({key: given}).value(declared)
    assert Properties({key: "3600000"}).value(declared) == 3_600_000


def test_a_small_number_with_its_unit_zero_and_the_special_values_are_accepted():
    given = {"flink.job.max.outage": "30ms", "flink.sink.map.retry.for": 0, "flink.shard.idle.interval": -1}
    found = {each.key: Properties(given).value(each) for each in NUMBERS if each.key in given}
    assert found == {"flink.job.max.outage": 30, "flink.sink.map.retry.for": 0, "flink.shard.idle.interval": -1}


def test_every_other_time_of_a_minute_or_more_is_that_of_a_property_named_by_its_unit_or_in_seconds():
    checked = {each.key for each in NUMBERS if each.unit == "ms" and (each.default or 0) >= 30_000}
    assert checked <= {*SECONDS_ARE_USUAL}


@pytest.mark.parametrize(
    ("minimum", "unit", "valid"),
    [
        (1, "records", "a whole number of at least 1 record"),
        (1, "batches", "a whole number of at least 1 batch"),
        (2, "records", "a whole number of at least 2 records"),
        (1, "ms", "a whole number of at least 1 ms, or a duration such as 10s"),
    ],
)
def test_the_valid_values_are_told_in_words(minimum, unit, valid, monkeypatch):
    monkeypatch.setattr(declaration, "_declared", {})

    assert declaration.integer("my.key", "How much.", 5, minimum, unit=unit).valid == valid


def test_the_example_of_a_message_is_in_its_range(monkeypatch):
    monkeypatch.setattr(declaration, "_declared", {})
    size = declaration.integer("my.size", "A size.", 1_000, minimum=1_000, maximum=256_000, unit="bytes")
    pause = declaration.integer("my.pause", "A pause.", 1, maximum=5, unit="s")

    assert size.valid == "a whole number from 1000 to 256000 bytes, or a size such as 64kb"
    assert pause.valid == "a whole number from 0 to 5 s, or a duration such as 1s"
