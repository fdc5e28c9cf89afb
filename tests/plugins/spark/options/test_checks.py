"""C2: what the planning process checks of a query's options before any task runs."""

import warnings

import pytest

from recordpublisher.plugins.spark.options.checks import check_job
from recordpublisher.plugins.spark.options.spark_options import SparkOptions
from recordpublisher.publishers.errors import ConfigurationError

EFO = {
    "stream": "orders",
    "metadatalocation": "/claims",
    "aws.region": "us-east-1",
    "flink.stream.recordpublisher": "EFO",
    "flink.stream.efo.consumername": "reports",
}


def test_f8_deregistration_by_the_query_is_warned_of_since_nothing_would_do_it():
    given = {**EFO, "flink.stream.efo.deregister": "LAST_OUT"}
    with pytest.warns(
        UserWarning, match=r"'flink.stream.efo.deregister' has no effect .* rp.spark.ConsumerDeregistration"
    ):
        check_job(SparkOptions.parse(given))


@pytest.mark.parametrize("more", [{}, {"flink.stream.efo.deregister": "NEVER"}])
def test_f8_the_default_and_never_are_not_warned_of(more):
    with warnings.catch_warnings(action="error"):
        check_job(SparkOptions.parse({**EFO, **more}))


@pytest.mark.parametrize("position", ['"yesterday"', "{}"])
def test_a_start_by_shard_that_is_no_position_is_refused(position):
    given = {**EFO, "startingPosition": f'{{"shardId-000000000000": {position}}}'}
    with pytest.raises(ConfigurationError, match="'startingPosition' is"):
        check_job(SparkOptions.parse(given))
