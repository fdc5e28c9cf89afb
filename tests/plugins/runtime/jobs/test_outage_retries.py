"""How long `recordpublisher run` retries the calls that read."""

import pytest

from recordpublisher.fetcher.settings import FetcherSettings, store_outages
from recordpublisher.plugins.runtime.jobs.outage_retries import outlasted_minutes, with_outage_retries
from recordpublisher.publishers.properties.groups.retries import (
    GETRECORDS_RETRIES,
    READ_RETRIES,
    SQL_RETRIES,
    SUBSCRIBE_RETRIES,
)
from recordpublisher.publishers.properties.properties import Properties


def mean_seconds(retries, properties):
    return retries.policy(properties).average_seconds


def test_an_outage_of_ten_minutes_is_outlasted_by_each_call_that_reads_and_by_a_database():
    properties = with_outage_retries(Properties({}))

    assert all(600 < mean_seconds(retries, properties) < 1_200 for retries in (*READ_RETRIES, SQL_RETRIES))


def test_retries_that_the_job_sets_stay_as_they_are():
    given = Properties({"flink.shard.getrecords.maxretries": 3, "flink.shard.subscribetoshard.backoff.max": 3_000})

    properties = with_outage_retries(given)

    assert mean_seconds(GETRECORDS_RETRIES, properties) < 2
    assert mean_seconds(SUBSCRIBE_RETRIES, properties) < 20


def test_a_job_can_say_for_how_long_an_outage_is_outlasted():
    assert 10 < outlasted_minutes(with_outage_retries(Properties({})))["service"] < 20
    assert outlasted_minutes(Properties({}))["service"] < 0.1


@pytest.mark.parametrize("given", [{"flink.sink.sql.uri": "postgresql://h/db"}, {"flink.state.uri": "sqlite:///a.db"}])
def test_a_job_with_a_database_says_for_how_long_its_outage_is_outlasted(given):
    assert outlasted_minutes(with_outage_retries(Properties({}))).keys() == {"service"}
    assert 10 < outlasted_minutes(with_outage_retries(Properties(given)))["database"] < 20
    assert (
        outlasted_minutes(with_outage_retries(Properties({**given, "flink.sql.transaction.maxretries": 3})))["database"]
        < 1
    )


@pytest.mark.parametrize("place", ["s3://bucket/orders", "dynamodb://t/j", "gs://bucket/orders"])
def test_a_job_with_a_store_elsewhere_says_for_how_long_its_outage_is_outlasted(place):
    properties = with_outage_retries(Properties({"flink.state.uri": place}))
    assert 10 < outlasted_minutes(properties)["state store"] < 20


def test_how_long_the_state_store_may_be_away_is_a_setting_of_its_own():
    properties = Properties({"flink.state.uri": "s3://bucket/state", "flink.state.outage": "5m"})
    minutes = outlasted_minutes(with_outage_retries(properties))
    assert (minutes["state store"], minutes["service"] > 10) == (5.0, True)
    assert store_outages(properties) == FetcherSettings.of(properties).store_outages
