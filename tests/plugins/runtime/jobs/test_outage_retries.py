"""How long `recordpublisher run` retries the calls that read."""

from recordpublisher.plugins.runtime.jobs.outage_retries import outlasted_minutes, with_outage_retries
from recordpublisher.publishers.properties.groups.retries import GETRECORDS_RETRIES, READ_RETRIES, SUBSCRIBE_RETRIES
from recordpublisher.publishers.properties.properties import Properties


def mean_seconds(retries, properties):
    return retries.policy(properties).longest_seconds(0) / 2


def test_an_outage_of_ten_minutes_is_outlasted_by_each_call_that_reads():
    properties = with_outage_retries(Properties({}))

    assert all(600 < mean_seconds(retries, properties) < 1_200 for retries in READ_RETRIES)


def test_retries_that_the_job_sets_stay_as_they_are():
    given = Properties({"flink.shard.getrecords.maxretries": 3, "flink.shard.subscribetoshard.backoff.max": 3_000})

    properties = with_outage_retries(given)

    assert mean_seconds(GETRECORDS_RETRIES, properties) < 2
    assert mean_seconds(SUBSCRIBE_RETRIES, properties) < 20


def test_a_job_can_say_for_how_long_an_outage_is_outlasted():
    assert 10 < outlasted_minutes(with_outage_retries(Properties({}))) < 20
    assert outlasted_minutes(Properties({})) < 0.1
