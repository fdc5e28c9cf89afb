"""A wrong setting fails on the driver, when the stream is loaded, and not later in every task (C2)."""

from __future__ import annotations

import warnings

import pytest

from recordpublisher.plugins.spark.options.checks import check_job
from recordpublisher.plugins.spark.options.spark_options import SparkOptions
from recordpublisher.publishers.errors import ConfigurationError

LOOKAHEAD, MAX_LAG = "flink.watermark.lookahead.millis", "flink.watermark.alignment.max.lag"


def check(folder, **more):
    given = {"stream": "orders", "metadatalocation": str(folder), "aws.region": "eu-west-1", **more}
    check_job(SparkOptions.parse(given))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"flink.deserializer": "thrift"}, "'flink.deserializer' is 'thrift'.*json"),
        ({"flink.watermark.strategy": "NONE"}, "'flink.watermark.strategy' is 'NONE'.*BOUNDED"),
        ({LOOKAHEAD: "5000", MAX_LAG: "5000"}, f"'{MAX_LAG}' is 5000. Valid: more than {LOOKAHEAD}"),
    ],
)
def test_unknown_names_and_contradicting_settings(tmp_path, wrong, words):
    with pytest.raises(ConfigurationError, match=words):
        check(tmp_path, **wrong)


def test_dead_letters_of_records_are_refused(tmp_path):
    wrong = {"flink.deserializer.error": "DEAD_LETTER"}
    with pytest.raises(ConfigurationError, match=r"'flink.deserializer.error' is 'DEAD_LETTER'.*Valid: FAIL, SKIP"):
        check(tmp_path, **wrong)


def test_a_property_without_effect_is_a_warning(tmp_path):
    given = {MAX_LAG: "9000", LOOKAHEAD: "5000"}
    with pytest.warns(UserWarning, match=f"'{MAX_LAG}' has no effect on Spark"):
        check(tmp_path, **given)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(tmp_path, **{LOOKAHEAD: "5000", "flink.watermark.strategy": "arrival"})


@pytest.mark.parametrize(
    "use",
    [
        {},
        {"flink.deserializer.schema": "id BIGINT"},
        {"flink.watermark.timestamp.field": "at"},
        {"flink.deserializer.error": "SKIP"},
    ],
)
def test_values_that_no_row_has_are_a_warning(tmp_path, use):
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        check(tmp_path, **{"flink.deserializer": "json"}, **use)
    told = [str(each.message) for each in warned]
    assert ["every record is decoded" in text for text in told] == ([] if use else [True])
