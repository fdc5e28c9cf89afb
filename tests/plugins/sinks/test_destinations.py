"""E10: where a sink writes to is told from its other settings, and is named without user and password."""

from pathlib import Path

import pytest

from recordpublisher.plugins.sinks.files.jsonl_sink import JsonlSink
from recordpublisher.plugins.sinks.kinesis import KinesisSink
from recordpublisher.plugins.sinks.map import MapSink
from recordpublisher.plugins.sinks.sql import SqlSink
from recordpublisher.publishers.properties.properties import Properties

SQL = {"flink.job.name": "j", "flink.sink.sql.uri": "postgresql://me:secret@db:5433/events?connect_timeout=3"}
URI = "flink.sink.sql.uri"
ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/out"


def sql(**changes):
    return SqlSink(Properties({**SQL, **changes})).destination()


def test_a_database_is_named_with_its_table_and_without_user_and_password():
    assert sql(**{"flink.sink.sql.table": "t"}) == "SqlSink, table t of postgresql://db:5433/events"


@pytest.mark.parametrize(
    "same",
    [
        {URI: "postgresql://other:rotated@db:5433/events"},
        {URI: "postgres://me@db:5433/events?sslmode=require"},
        {"flink.sink.buffer.bytes": "1000000"},
    ],
)
def test_credentials_and_options_are_not_the_place(same):
    assert sql(**same) == sql()


@pytest.mark.parametrize(
    "other",
    [
        {URI: "postgresql://me:secret@db2:5433/events"},
        {URI: "postgresql://me:secret@db:5434/events"},
        {URI: "postgresql://me:secret@db:5433/others"},
        {URI: "sqlite:///events"},
        {"flink.sink.sql.table": "others"},
    ],
)
def test_another_database_or_table_is_another_place(other):
    assert sql(**other) != sql()


def test_a_file_is_named_with_its_whole_path():
    here = Path.cwd()
    assert sql(**{URI: "sqlite:///events.db"}).endswith(f" of sqlite:///{here}/events.db")
    assert JsonlSink(Properties({"flink.sink.jsonl.path": "out"})).destination() == f"JsonlSink, folder {here}/out"


def test_a_stream_is_named_without_its_arn():
    properties = {"aws.region": "eu-west-1"}
    assert KinesisSink(ARN, properties).destination() == KinesisSink("out", properties).destination()
    assert KinesisSink("out", properties).destination() == "KinesisSink, stream out"


def test_other_sinks_are_named_by_their_class():
    assert MapSink(print).destination() == "MapSink"
