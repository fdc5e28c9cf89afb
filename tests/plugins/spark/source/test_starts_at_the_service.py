"""Where a query starts in a shard, planned and read by what Spark calls in its driver and its tasks, against the endpoint."""

import json

import pyarrow as pa
import pytest
from pyspark.sql import types

from pyspark_recordpublisher import DefaultSource
from recordpublisher.local import serve_in_thread

SCHEMA = types.StructType([types.StructField("data", types.BinaryType())])
DATA = [b"0", b"1", b"2"]


@pytest.fixture(scope="module")
def served():
    with serve_in_thread(streams={"orders": 1, "quiet": 1}) as served:
        for data in DATA:
            served.call(served.endpoint.stream("orders").put, data, "k")
        yield served


def number_of(shard, which):
    """What Kinesis lists as the shard's beginning, or the number of a record."""
    if which == "beginning":
        return shard.describe()["SequenceNumberRange"]["StartingSequenceNumber"]
    return shard.log.numbers.text(shard.log.records_after(0)[which][0])


def read_from(served, folder, stream, starts):
    options = {"stream": stream, "startingPosition": json.dumps(starts), "metadataLocation": str(folder)}
    given = {key.lower(): value for key, value in {**served.properties(), **options}.items()}  # as Spark gives them
    reader = DefaultSource(given).streamReader(SCHEMA)
    try:
        offset, read = reader.initialOffset(), []
        for _ in range(5):
            planned = reader.latestOffset(offset, reader.getDefaultReadLimit())
            if planned != offset:
                batches = [batch for part in reader.partitions(offset, planned) for batch in reader.read(part)]
                read += pa.Table.from_batches(batches).column("data").to_pylist() if batches else []
            offset = planned
            if len(read) == len(DATA):
                break
        return read
    finally:
        reader.stop()


@pytest.mark.parametrize(
    ("iterator", "which", "expected"),
    [
        ("AT_SEQUENCE_NUMBER", "beginning", DATA),
        ("AT_SEQUENCE_NUMBER", 0, DATA),
        ("AFTER_SEQUENCE_NUMBER", "beginning", DATA),
        ("AFTER_SEQUENCE_NUMBER", 0, DATA[1:]),
        ("AFTER_SEQUENCE_NUMBER", 2, []),
    ],
)
def test_a_query_starts_at_or_after_the_number_and_finds_nothing_lost(served, tmp_path, iterator, which, expected):
    (shard,) = served.endpoint.stream("orders").shards.values()
    number = number_of(shard, which)
    start = number if iterator.startswith("AT") else {"iteratorType": iterator, "iteratorPosition": number}
    assert read_from(served, tmp_path, "orders", {shard.id: start}) == expected


def test_an_empty_shard_starts_after_its_beginning(served, tmp_path):
    (shard,) = served.endpoint.stream("quiet").shards.values()
    start = {"iteratorType": "AFTER_SEQUENCE_NUMBER", "iteratorPosition": number_of(shard, "beginning")}
    assert read_from(served, tmp_path, "quiet", {shard.id: start}) == []
