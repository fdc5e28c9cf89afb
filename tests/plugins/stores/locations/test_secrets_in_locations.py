"""Credentials in the URI of a store are refused, and never shown (C3)."""

import pytest

from recordpublisher.plugins.stores.by_location import conditional_store_of
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.kinesis.access import endpoint_of
from recordpublisher.publishers.properties.properties import Properties

PROPERTIES = Properties({"aws.region": "eu-west-1"})


@pytest.mark.parametrize(
    "location",
    [
        "s3://me:SECRET@bucket/state",
        "s3a://KEY:SECRET@bucket",
        "s3a://KEY:SEC/SECRET@bucket/state",
        "s3://SECRET@bucket/state",
        "dynamodb://me:SECRET@table/job",
        "gs://me:SECRET@bucket/claims",
        "abfss://container:SECRET@account.dfs.core.windows.net/claims",
        "abfss://container@account.dfs.core.windows.net/claims?sig=SECRET",
        "postgresql://me:SE@SECRET@host/db",
        "postgresql//me:SECRET@host/db",
    ],
)
def test_credentials_where_they_do_not_belong_are_refused_and_not_shown(location):
    with pytest.raises(ConfigurationError) as raised:
        conditional_store_of(location, "flink.state.uri", PROPERTIES)

    assert "SECRET" not in f"{raised.value!r} {raised.value} {raised.value.__cause__}"


def test_an_endpoint_has_no_credentials():
    with pytest.raises(ConfigurationError) as raised:
        endpoint_of(Properties({"aws.endpoint": "http://me:SECRET@localhost:4567"}))

    assert "SECRET" not in str(raised.value)
