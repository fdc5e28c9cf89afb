"""The file sinks on S3 (moto's server): hidden objects until an entry has committed them, each record in exactly one (S6)."""

import errno
import json
import os
import secrets
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

import boto3
import pytest

import recordpublisher as rp
from recordpublisher.local import serve_in_thread
from recordpublisher.plugins.sinks.files.staged_objects import StagedObjects
from recordpublisher.testing import CommittingSinkContract, SinkCase

from fakes.batches import batch
from fakes.commits.committing_sink import Start, snapshot_at
from servers.moto_server import KEYS, serve_moto

STATE = snapshot_at(2)


@pytest.fixture(scope="module")
def moto():
    with serve_moto() as url:
        yield url


@cache
def client_of(url):
    return boto3.client(
        "s3", endpoint_url=url, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="s"
    )


class Bucket:
    """A prefix of its own in the bucket."""

    def __init__(self, url):
        self.url = url
        self.prefix = f"out-{secrets.token_hex(4)}"
        self.location = f"s3://bucket/{self.prefix}"
        self.client = client_of(url)

    def properties(self, **more):
        given = {"flink.state.endpoint": self.url, "aws.region": "us-east-1", "flink.sink.jsonl.path": self.location}
        return rp.Properties({**KEYS, **given, **more})

    def names(self):
        found = self.client.list_objects_v2(Bucket="bucket", Prefix=self.prefix).get("Contents", [])
        return sorted(each["Key"].removeprefix(f"{self.prefix}/") for each in found)

    def visible(self):
        return [name for name in self.names() if not name.startswith(".")]

    def staged(self):
        return [name for name in self.names() if name.startswith(".recordpublisher/staged/")]

    def rows(self):
        texts = [
            self.client.get_object(Bucket="bucket", Key=f"{self.prefix}/{name}")["Body"] for name in self.visible()
        ]
        return [json.loads(line) for text in texts for line in text.read().decode().splitlines()]


@pytest.fixture
def bucket(moto):
    return Bucket(moto)


@pytest.fixture
async def started():
    """Starts a job with a sink, and closes it at the end of the test."""
    starts = []

    async def start(sink):
        starts.append(Start(sink))
        starts[-1].restored = await starts[-1].open()
        return starts[-1]

    yield start
    for each in starts:
        await each.sink.close()
        await each.alone.close()


@pytest.mark.slow
class TestContract(CommittingSinkContract):
    deadline = 60.0  # a shared machine may be slow

    @pytest.fixture(autouse=True)
    def _bucket(self, bucket):
        self.bucket = bucket

    @asynccontextmanager
    async def open_case(self):
        async def written():
            return [row["data"].encode() for row in self.bucket.rows()]

        yield SinkCase(lambda: rp.JsonlSink(self.bucket.properties()), written)


async def test_objects_have_the_names_of_files_and_leave_nothing_hidden_but_the_entry(bucket, started):
    job = await started(rp.JsonlSink(bucket.properties()))
    await job.sink.write(batch(b"a", b"b"))
    await job.checkpoint(STATE)
    names = [name for name in bucket.names() if not name.startswith(".recordpublisher/entries/group/")]
    assert names == ["orders/shardId-0/1.-1-2.-1.jsonl"]
    assert (await started(rp.JsonlSink(bucket.properties()))).restored == [STATE]


async def test_the_next_start_copies_what_was_committed_and_deletes_what_was_not(bucket, started):
    dying = await started(rp.JsonlSink(bucket.properties()))
    await dying.sink.write(batch(b"committed"))
    await dying.alone.commit(STATE)
    await dying.sink.write(batch(b"never", shard_id="shardId-1"))
    await dying.alone._positions._commits.stage()
    assert (len(bucket.staged()), bucket.visible()) == (2, [])
    await started(rp.JsonlSink(bucket.properties()))
    assert (bucket.staged(), [row["data"] for row in bucket.rows()]) == ([], ["committed"])


async def test_a_thread_that_writes_after_a_failed_upload_does_not_replace_its_error(bucket, monkeypatch):
    staged = StagedObjects(bucket.location, "flink.sink.jsonl.path", bucket.properties())
    remove = os.rmdir

    def remove_beside_a_writer(path, **options):
        (Path(path) / "late").touch()
        remove(path, **options)

    def fail(file):
        raise ValueError("no columns")

    monkeypatch.setattr(os, "rmdir", remove_beside_a_writer)
    with pytest.raises(ValueError, match="no columns"):
        await staged.stage("life", 1, {"a.jsonl": fail})


async def test_a_staged_object_that_is_gone_is_named_and_one_that_a_user_moved_away_is_not_missed(
    bucket, started, caplog
):
    job = await started(rp.JsonlSink(bucket.properties()))
    await job.sink.write(batch(b"moved"))
    await job.checkpoint(STATE)
    (moved,) = bucket.visible()
    bucket.client.delete_object(Bucket="bucket", Key=f"{bucket.prefix}/{moved}")
    job = await started(rp.JsonlSink(bucket.properties()))
    assert f"{moved} of {bucket.location} are not there: they were probably published before" in caplog.text

    await job.sink.write(batch(b"deleted"))
    await job.alone.commit(STATE)
    (hidden,) = bucket.staged()
    bucket.client.delete_object(Bucket="bucket", Key=f"{bucket.prefix}/{hidden}")
    with pytest.raises(rp.StateError, match=f"{hidden} .* records are lost"):
        await job.alone.publish()


async def test_a_large_file_is_uploaded_in_parts_and_none_is_left(bucket, started):
    job = await started(rp.JsonlSink(bucket.properties()))
    await job.sink.write(batch(b"x" * 12_000_000))
    await job.checkpoint(STATE)
    assert [len(row["data"]) for row in bucket.rows()] == [12_000_000]
    assert not bucket.client.list_multipart_uploads(Bucket="bucket").get("Uploads")


@pytest.mark.parametrize("place", ["missing", "full"])
async def test_a_local_disk_that_takes_no_files_is_an_error_that_names_both(bucket, started, monkeypatch, place):
    """It was an OSError, as if the sink had a defect, and not the StateError that ends a worker."""
    job = await started(rp.JsonlSink(bucket.properties()))
    await job.sink.write(batch(b"a"))
    with monkeypatch.context() as patched:
        if place == "missing":
            patched.setattr("tempfile.tempdir", "/missing")
        else:
            patched.setattr("pathlib.Path.write_bytes", no_space)
        with pytest.raises(rp.StateError, match=rf"files for {bucket.location} cannot .* local disk first: .*Errno"):
            await job.checkpoint(STATE)

    await job.checkpoint(STATE)
    assert [row["data"] for row in bucket.rows()] == ["a"]


def no_space(path, content):
    raise OSError(errno.ENOSPC, "No space left on device")


async def test_parquet_is_written_there_too(bucket, started):
    sink = rp.ParquetSink(bucket.properties(**{"flink.sink.parquet.path": bucket.location}))
    job = await started(sink)
    await sink.write(batch(b"a"))
    await job.checkpoint(STATE)
    (name,) = bucket.visible()
    body = bucket.client.get_object(Bucket="bucket", Key=f"{bucket.prefix}/{name}")["Body"].read()
    assert name.endswith(".parquet")
    assert body[:4] == body[-4:] == b"PAR1"


async def test_a_bucket_that_is_missing_is_an_error_with_its_name(moto, started):
    given = Bucket(moto).properties(**{"flink.sink.jsonl.path": "s3://nobody/x"})
    with pytest.raises(rp.StateError, match="s3://nobody/x"):
        await started(rp.JsonlSink(given))


def test_secrets_in_the_location_are_refused():  # C3
    with pytest.raises(rp.ConfigurationError) as raised:
        rp.JsonlSink(rp.Properties({"flink.sink.jsonl.path": "s3://KEY:SECRET@bucket/x", "aws.region": "eu-west-1"}))
    assert "SECRET" not in str(raised.value)


@pytest.mark.parametrize("assignment", ["ALONE", "GROUP"])
async def test_a_job_writes_each_record_once_over_its_starts(bucket, tmp_path, assignment):
    with serve_in_thread(streams={"orders": 2}) as served:
        given = {
            **bucket.properties(),
            **served.endpoint.properties(),
            "flink.sink": "jsonl",
            "flink.job.workers": assignment,
            "flink.state.checkpoint.interval": 200,
            "flink.stream.initpos": "TRIM_HORIZON",
            **({"flink.state.uri": f"{tmp_path}/group"} if assignment == "GROUP" else {}),
        }
        for _ in range(2):
            served.stream("orders").put(*({"n": number} for number in range(20)))
            async with rp.DataFetcher("orders", given) as fetcher:
                await fetcher.run_bounded(max_time=60, max_records=20)
    numbers = [row["sequenceNumber"] for row in bucket.rows()]
    assert (len(numbers), len(set(numbers))) == (40, 40)
    assert bucket.staged() == []


async def test_in_a_bucket_too_the_folder_remembers_its_columns_and_partitions_have_their_names(bucket):
    def sink(**more):
        return rp.ParquetSink(bucket.properties(**{"flink.sink.parquet.path": bucket.location, **more}))

    partitioned = {"flink.sink.partitions": "partitionKey={partitionKey}"}
    opened, records = sink(**partitioned), batch(b"a", b"b")
    for record, key in zip(records.records, ["ü 1", "50%/=x"], strict=True):
        record.partition_key = key
    await opened.open(rp.SinkContext())
    await opened.write(records)
    await opened.flush()
    assert bucket.visible() == [
        "partitionKey=50%25%2F%3Dx/orders/shardId-0/1.-1-2.-1.parquet",
        "partitionKey=ü 1/orders/shardId-0/1.-1-2.-1.parquet",
    ]
    other = sink()
    with pytest.raises(rp.ConfigurationError, match="are partitioned by partitionKey"):
        await other.open(rp.SinkContext())
    for each in (opened, other):
        await each.close()
        await each.entries().close()


@pytest.mark.parametrize("name", ["_delta_log/00000000000000000000.json", "metadata/00000-a.metadata.json"])
async def test_files_are_not_written_among_those_of_a_table(bucket, name):
    bucket.client.put_object(Bucket="bucket", Key=f"{bucket.prefix}/{name}", Body=b"{}")

    with pytest.raises(rp.ConfigurationError, match="folder of a table of Delta or Iceberg"):
        await rp.JsonlSink(bucket.properties()).open(rp.SinkContext())


async def test_a_stream_may_have_the_name_of_a_tables_folder(bucket):
    bucket.client.put_object(Bucket="bucket", Key=f"{bucket.prefix}/metadata/shardId-0/1.jsonl", Body=b"")

    await rp.JsonlSink(bucket.properties()).open(rp.SinkContext())
