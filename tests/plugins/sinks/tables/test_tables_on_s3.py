"""Tables in a bucket of a local S3 server: files, marks, entries and the table's own log."""

import asyncio

import boto3
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

import recordpublisher as rp
from recordpublisher.plugins.sinks.tables.delta import DeltaSink
from recordpublisher.plugins.sinks.tables.iceberg import IcebergSink

from .lake_tables import number, opened, payloads
from fakes.batches import batch
from servers.moto_server import KEYS, serve_moto

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def url():
    with serve_moto() as url:
        yield url


class DeltaOnS3:
    def __init__(self, url, folder):
        self.given = {
            "flink.sink.delta.uri": f"s3://bucket/{folder.name}",
            "flink.state.endpoint": url,
            "aws.region": "us-east-1",
            **KEYS,
        }
        self.options = {"AWS_ENDPOINT_URL": url, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}
        self.options |= {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "s3cr3t"}
        self.prefix = f"{folder.name}/"

    def sink(self, **more):
        return DeltaSink(rp.Properties({**self.given, **more}))

    def rows(self):
        return (
            DeltaTable(self.given["flink.sink.delta.uri"], storage_options=self.options).to_pyarrow_table().to_pylist()
        )


class IcebergOnS3:
    def __init__(self, url, folder):
        self.catalog = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"s3://bucket/{folder.name}",
        }
        self.catalog |= {
            "s3.endpoint": url,
            "s3.access-key-id": "a",
            "s3.secret-access-key": "s",
            "s3.region": "us-east-1",
        }
        self.folder = folder
        self.prefix = f"{folder.name}/lake/orders/"

    def sink(self, **more):
        given = {f"flink.sink.iceberg.catalog.{name}": value for name, value in self.catalog.items()}
        given |= {"flink.sink.iceberg.table": "lake.orders", "flink.state.uri": str(self.folder / "state")}
        return IcebergSink(rp.Properties({**given, **more}))

    def rows(self):
        return load_catalog("default", **self.catalog).load_table("lake.orders").scan().to_arrow().to_pylist()


@pytest.fixture(params=[DeltaOnS3, IcebergOnS3])
def kind(request, url, tmp_path):
    return request.param(url, tmp_path)


def objects(url, prefix):
    client = boto3.client(
        "s3", endpoint_url=url, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="s"
    )
    found = client.list_objects_v2(Bucket="bucket", Prefix=prefix).get("Contents", [])
    client.close()
    return [each["Key"].removeprefix(prefix) for each in found if not each["Key"].endswith("/")]


async def test_of_four_that_publish_one_number_one_lands_and_leftovers_go(kind, url):
    sinks = [await opened(kind, f"job.0.{life}") for life in range(1, 5)]
    await sinks[0].write(batch(b"a", b"b"))
    one = await sinks[0].stage(number(1))
    await sinks[0].write(batch(b"never committed"))
    await sinks[0].stage(number(2))
    assert payloads(kind) == []

    await asyncio.gather(*(sink.publish([one]) for sink in sinks))
    await sinks[1].discard(lambda life: life == "job.0.1", [])

    assert payloads(kind) == [b"a", b"b"]
    left = objects(url, kind.prefix)
    assert [name for name in left if name.startswith("data/job")] == ["data/job.0.1/1/1.parquet"]
    assert [name for name in left if name.startswith("_recordpublisher")] == []
    for sink in sinks:
        await sink.close()


async def test_each_value_of_a_partition_is_found(kind):
    sink = await opened(kind, **{"flink.sink.partitions": "partitionKey={partitionKey}"})
    keys = ["de", "a/b", "50% =ü"]
    records = batch(*(key.encode() for key in keys))
    for record, key in zip(records.records, keys, strict=True):
        record.partition_key = key
    await sink.write(records)
    await sink.publish([await sink.stage(number(1))])
    assert sorted((row["data"].decode(), row["partitionKey"]) for row in kind.rows()) == sorted(
        zip(keys, keys, strict=True)
    )
    await sink.close()


async def test_a_staged_object_that_is_gone_is_named(kind, url):
    sink = await opened(kind)
    await sink.write(batch(b"a"))
    one = await sink.stage(number(1))
    sink._table.folder().delete(["data/job.0.1/1/1.parquet"])
    with pytest.raises(rp.StateError, match=r"data/job\.0\.1/1/1\.parquet .* committed but missing"):
        await sink.publish([one])
    await sink.close()


async def test_an_unreachable_bucket_is_unavailable_and_a_later_call_publishes(kind, monkeypatch):
    sink = await opened(kind)
    await sink.write(batch(b"a"))
    one = await sink.stage(number(1))

    def away(*_):
        raise OSError("503 Slow Down")

    with monkeypatch.context() as patched:
        patched.setattr(type(sink._table), "load", away)
        with pytest.raises(rp.StoreUnavailableError, match="503 Slow Down"):
            await sink.publish([one])
    await sink.publish([one])
    assert payloads(kind) == [b"a"]
    await sink.close()


async def test_entries_of_delta_lie_beside_the_table(url, tmp_path):
    sink = DeltaOnS3(url, tmp_path).sink()
    store = sink.entries()
    assert store.place == f"s3://bucket/{tmp_path.name}/_recordpublisher/positions"
    await store.put_if_absent("worker-0", b"{}")
    assert objects(url, f"{tmp_path.name}/") == ["_recordpublisher/positions/worker-0"]
    await store.close()
    await sink.close()


@pytest.fixture
def nothing_in_the_environment(monkeypatch, tmp_path):
    """No credentials but those in a file with the profile `lake`."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    keys = tmp_path / "credentials"
    keys.write_text("[lake]\naws_access_key_id = a\naws_secret_access_key = s\n")
    return {"aws.credentials.provider.profile.name": "lake", "aws.credentials.provider.profile.path": str(keys)}


@pytest.mark.parametrize("provider", ["PROFILE", "ASSUME_ROLE"])
async def test_credentials_of_a_profile_and_of_a_role_reach_both_clients(
    url, tmp_path, nothing_in_the_environment, provider
):
    kind = DeltaOnS3(url, tmp_path)
    for key in KEYS:
        del kind.given[key]
    role = {
        "aws.credentials.provider.role.arn": "arn:aws:iam::123456789012:role/lake",
        "aws.credentials.provider.role.stsendpoint": url,
    }
    given = {"aws.credentials.provider": provider, **nothing_in_the_environment}
    sink = await opened(kind, **given | (role if provider == "ASSUME_ROLE" else {}))
    await sink.write(batch(b"a"))
    await sink.publish([await sink.stage(number(1))])
    assert payloads(kind) == [b"a"]
    used = sink._table._storage.options
    assert ("AWS_SESSION_TOKEN" in used, used["AWS_ACCESS_KEY_ID"] == "a") == (
        (True, False) if provider == "ASSUME_ROLE" else (False, True)
    )
    await sink.close()
    await sink.entries().close()


async def test_a_table_is_loaded_again_when_credentials_have_changed(url, tmp_path):
    sink = await opened(DeltaOnS3(url, tmp_path))
    table = sink._table
    first = table.load()
    assert table.load() is first
    table._storage.options = {**table._storage.options, "AWS_SESSION_TOKEN": "new"}
    assert table.load() is not first
    await sink.close()
