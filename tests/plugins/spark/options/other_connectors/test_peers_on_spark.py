"""Jobs with the options of another connector, as in its README's example, on a real Spark: each reads what it reads there."""

from __future__ import annotations

import json
import time

import boto3
import pytest

from spark_jobs.queries import WAIT_SECONDS, numbers, to_parquet

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3 * WAIT_SECONDS)]
KEYS = ("aws.credentials.provider.basic.accesskeyid", "aws.credentials.provider.basic.secretkey")


def run_once(spark, folder, options, name="run"):
    """A job of another connector has their options, and a place for claims; here it ends at the tip."""
    claims = str(folder / name / "claims")
    reader = spark.readStream.format("kinesis").options(**{**options, "metadataLocation": claims})
    frame = reader.load().selectExpr("cast(get_json_object(cast(data as string), '$.n') as long) as n")
    to_parquet(frame, folder / name, availableNow=True).awaitTermination()
    return numbers(spark, folder / name)


def access(stream):
    """The endpoint's URL, an access key and its secret."""
    properties = stream.served.endpoint.properties()
    return (properties["aws.endpoint"], *(properties.get(key, "test") for key in KEYS))


def test_a_job_of_qubole_starts_at_the_oldest_record_or_where_its_stored_positions_say(spark, kinesis, tmp_path):
    stream = kinesis("qubole")
    stream.put(40)
    url, access_key, secret = access(stream)
    options = {"streamName": "qubole", "endpointUrl": url, "awsAccessKeyId": access_key, "awsSecretKey": secret}
    assert run_once(spark, tmp_path, {**options, "startingposition": "TRIM_HORIZON"}) == list(range(40))

    records = stream.records()
    first, second = ([r for r in records if r.shard_id == shard] for shard in sorted({r.shard_id for r in records}))
    stored = {
        "metadata": {"streamName": "qubole", "batchId": "7"},
        first[0].shard_id: {"iteratorType": "AFTER_SEQUENCE_NUMBER", "iteratorPosition": first[2].sequence_number},
        second[0].shard_id: {"iteratorType": "AT_SEQUENCE_NUMBER", "iteratorPosition": second[4].sequence_number},
    }
    expected = sorted(json.loads(record.data)["n"] for record in (*first[3:], *second[4:]))
    assert run_once(spark, tmp_path, {**options, "startingposition": json.dumps(stored)}, "stored") == expected


def test_the_number_that_kinesis_lists_for_the_beginning_of_a_shard_is_trim_horizon(spark, kinesis, tmp_path):
    stream = kinesis("beginnings")
    stream.put(40)
    url, *keys = access(stream)
    client = boto3.client(
        "kinesis", "us-east-1", endpoint_url=url, aws_access_key_id=keys[0], aws_secret_access_key=keys[1]
    )
    listed = client.list_shards(StreamName=stream.name)["Shards"]
    client.close()
    numbers_of_beginnings = [shard["SequenceNumberRange"]["StartingSequenceNumber"] for shard in listed]
    kinds = ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER")
    start = {
        shard["ShardId"]: {"iteratorType": kind, "iteratorPosition": number}
        for shard, kind, number in zip(listed, kinds, numbers_of_beginnings, strict=True)
    }
    options = stream.options(tmp_path, startingPosition=json.dumps(start))
    del options["flink.stream.initpos"]
    assert run_once(spark, tmp_path, options) == list(range(40))
    del options["metadataLocation"]
    rows = spark.read.format("kinesis").options(**options).load().select("data").collect()
    assert sorted(json.loads(row.data)["n"] for row in rows) == list(range(40))


def test_a_job_of_awslabs_reads_what_comes_after_its_start(spark, kinesis, tmp_path):
    stream = kinesis("awslabs")
    stream.put(20)
    time.sleep(1.1)  # LATEST is a time of the service, which tells whole seconds
    url, access_key, secret = access(stream)
    options = {
        "kinesis.region": "us-east-1",
        "kinesis.streamName": "awslabs",
        "kinesis.consumerType": "GetRecords",
        "kinesis.endpointUrl": url,
        "kinesis.startingposition": "LATEST",
        "kinesis.awsAccessKeyId": access_key,
        "kinesis.awsSecretKey": secret,
    }
    assert run_once(spark, tmp_path, options) == []
    stream.put(15)
    assert run_once(spark, tmp_path, options) == list(range(20, 35))


def test_a_job_of_databricks_subscribes_with_the_consumer_that_it_has_there(spark, kinesis, tmp_path):
    stream = kinesis("databricks")
    stream.put(30)
    url, access_key, secret = access(stream)
    options = {
        "streamName": "databricks",
        "region": "us-east-1",
        "endpoint": url,
        "initialPosition": "trim_horizon",
        "consumerMode": "efo",
        "consumerName": "reports",
        "consumerNamePrefix": "databricks_",
        "requireConsumerDeregistration": "false",
        "awsAccessKey": access_key,
        "awsSecretKey": secret,
    }
    assert run_once(spark, tmp_path, options) == list(range(30))
    consumers = stream.served.call(lambda: [each.name for each in stream.stream.consumers.all()])
    assert consumers == ["databricks_reports"]
