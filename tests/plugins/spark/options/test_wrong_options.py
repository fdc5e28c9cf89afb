"""What a job on a real Spark ends with when an option, the schema, the stream or the place of claims is wrong (C2)."""

from __future__ import annotations

import re

import pytest

from spark_jobs.queries import WAIT_SECONDS, to_parquet

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3 * WAIT_SECONDS)]
NOW = {"availableNow": True}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"flink.stream.recordpublisher": "CARRIER_PIGEON"}, "no publisher of that name is installed"),
        ({"flink.stream.recordpublisher": "EFO"}, "flink.stream.efo.consumername"),
        ({"flink.shard.getrecords.maxrecordcount": "many"}, "is 'many'"),
        (
            {"metadataLocation": "hdfs://host/claims"},
            "this library has no client of HDFS. Valid: a folder, s3://bucket/prefix",
        ),
        ({"mode": "continuous"}, "the mode CONTINUOUS no longer exists. Valid: BATCH"),
        ({"stream": ","}, "setting 'stream' is required"),
    ],
)
def test_c2_bad_options_fail_when_the_stream_is_loaded(spark, kinesis, tmp_path, changed, words):
    stream = kinesis(f"bad-{abs(hash(words))}")
    with pytest.raises(Exception, match="ConfigurationError") as raised:
        stream.load(spark, tmp_path, **changed)
    assert words in str(raised.value)
    assert "Traceback" not in str(raised.value)


@pytest.mark.parametrize(
    ("changed", "schema", "words", "trigger"),
    [
        ({"metadataLocation": ""}, None, "setting 'metadataLocation' is required", {"processingTime": "1 second"}),
        ({"endingPosition": "NOW"}, None, "read a part of a stream with spark.read", NOW),
        ({}, "data string", "setting 'schema' is", {"processingTime": "1 second"}),
        ({"startingPosition": "yesterday"}, "data binary", "yesterday", NOW),
    ],
)
def test_c2_what_only_the_start_of_a_query_shows_ends_it_with_its_sentence(
    spark, kinesis, tmp_path, changed, schema, words, trigger
):
    options = {**kinesis(f"unfit-{abs(hash(words))}").options(tmp_path), **changed}
    reader = spark.readStream.format("kinesis").options(**{key: value for key, value in options.items() if value})
    frame = (reader if schema is None else reader.schema(schema)).load()
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(Exception, match=re.escape(words)) as raised:
        query.trigger(**trigger).start().awaitTermination(WAIT_SECONDS)
    assert "Traceback" not in str(raised.value)
    assert "UnboundLocalError" not in str(raised.value)


def test_c2_an_unknown_stream_ends_the_query_with_its_name(spark, kinesis, tmp_path):
    stream = kinesis("known")
    query = to_parquet(stream.load(spark, tmp_path, stream="unknown"), tmp_path)
    with pytest.raises(Exception, match=r"stream 'unknown' does not exist in .*; existing streams: .*known") as raised:
        query.awaitTermination(WAIT_SECONDS)
    assert "Traceback" not in str(raised.value)


def test_c2_a_metadata_location_that_cannot_hold_claims_is_refused_when_the_stream_is_loaded(spark, kinesis, tmp_path):
    stream = kinesis("no-claims")
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(Exception, match=r"metadataLocation.*is not a folder. Valid: a folder"):
        stream.load(spark, tmp_path, metadataLocation=tmp_path / "file" / "claims")
