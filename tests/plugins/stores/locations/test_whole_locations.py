"""A location is used whole, or refused: two jobs whose URIs differ never share a place."""

import pytest

import recordpublisher as rp
from recordpublisher.plugins.sinks.tables.storage import TableStorage
from recordpublisher.plugins.stores.by_location import conditional_store_of
from recordpublisher.plugins.stores.durable_files import path_of

GIVEN = rp.Properties({"aws.region": "eu-west-1"})
CUT = ["dynamodb://table/orders#eu", "dynamodb://table/orders?eu", "s3://bucket/p#eu", "s3://bucket/p?eu"]
CUT += ["gs://bucket/p#eu", "abfss://c@account.dfs.core.windows.net/p#eu"]


@pytest.mark.parametrize("location", [*CUT, "file:///state#eu", "file:///state?eu"])
def test_a_state_uri_that_would_be_cut_is_refused(location):
    with pytest.raises(rp.ConfigurationError, match=r"flink\.state\.uri.*'[?#]'"):
        conditional_store_of(location, "flink.state.uri", GIVEN)


@pytest.mark.parametrize("location", ["s3://bucket/p#eu", "gs://bucket/p#eu"])
def test_a_tables_location_that_would_be_cut_is_refused(location):
    with pytest.raises(rp.ConfigurationError, match="'#'"):
        TableStorage(location, "flink.sink.delta.path", GIVEN)


def test_a_path_and_an_escaped_uri_are_used_whole():
    assert [path_of("/state#eu", "key"), path_of("file:///state%23eu", "key")] == ["/state#eu"] * 2
