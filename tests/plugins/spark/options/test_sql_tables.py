"""Tables over the source are refused with the statement that works; Spark's own options of them are from Spark 4.3."""

from __future__ import annotations

import pytest

from recordpublisher.plugins.spark import KinesisSource
from recordpublisher.publishers.errors import ConfigurationError

CREATED = {
    "stream": "orders",
    "option.stream": "orders",
    "provider": "kinesis",
    "owner": "me",
    "aws.region": "us-east-1",
}
VIEW = "CREATE TEMPORARY VIEW orders USING kinesis OPTIONS"


def test_c2_create_table_names_the_view():
    with pytest.raises(ConfigurationError, match=rf"'CREATE TABLE USING' is 'kinesis'.*{VIEW}"):
        KinesisSource(CREATED).schema()


def test_c2_a_read_without_options_may_be_of_a_table():
    with pytest.raises(
        ConfigurationError,
        match=rf"'stream' is required. Valid: a stream's name .*in SQL {VIEW}.*, because a table of CREATE TABLE cannot be read",
    ):
        KinesisSource({}).reader(None)


def test_a_select_with_options_is_a_read_like_any_other():
    assert "data BINARY" in KinesisSource({"stream": "orders", "aws.region": "us-east-1"}).schema()
