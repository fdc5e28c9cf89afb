"""C2: what the planning process checks of a query's options before any task runs."""

import warnings

import pytest

from recordpublisher.plugins.spark.options import SparkOptions
from recordpublisher.plugins.spark.service.job_checks import check_job
from recordpublisher.publishers.errors import ConfigurationError

TRACKER = "flink.watermark.tracker"


def test_in_mode_continuous_the_files_of_the_trackers_tls_are_checked():
    """Its fetcher is an ordinary one, so it has the same tracker; Spark itself opens no connection between processes."""
    tracker = {TRACKER: "TCP", f"{TRACKER}.address": "127.0.0.1:1", f"{TRACKER}.token": "secret"}
    given = {"stream": "orders", "metadatalocation": "/wal", "mode": "continuous", "aws.region": "us-east-1", **tracker}
    check_job(SparkOptions.parse(given))

    with pytest.raises(ConfigurationError, match=rf"'{TRACKER}.tls.ca' has the value '/nowhere/ca.pem'; No such file"):
        check_job(SparkOptions.parse({**given, f"{TRACKER}.tls.ca": "/nowhere/ca.pem"}))


EFO = {
    "stream": "orders",
    "metadatalocation": "/claims",
    "aws.region": "us-east-1",
    "flink.stream.recordpublisher": "EFO",
    "flink.stream.efo.consumername": "reports",
}


@pytest.mark.parametrize("mode", ["batch", "continuous"])
def test_f8_deregistration_by_the_query_is_warned_of_since_nothing_would_do_it(mode):
    given = {**EFO, "mode": mode, "flink.stream.efo.deregister": "LAST_OUT"}
    with pytest.warns(
        UserWarning, match=r"'flink.stream.efo.deregister' has no effect .* rp.spark.ConsumerDeregistration"
    ):
        check_job(SparkOptions.parse(given))


@pytest.mark.parametrize("more", [{}, {"flink.stream.efo.deregister": "NEVER"}])
def test_f8_the_default_and_never_are_not_warned_of(more):
    with warnings.catch_warnings(action="error"):
        check_job(SparkOptions.parse({**EFO, **more}))
