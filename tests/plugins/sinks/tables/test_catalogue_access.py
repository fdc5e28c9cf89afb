"""A catalogue of AWS (Glue, DynamoDB) calls as its own settings and the SDK's say."""

import pytest

from recordpublisher.plugins.sinks.tables.iceberg import IcebergTable
from recordpublisher.plugins.sinks.tables.iceberg_file_io import ObjectFileIO
from recordpublisher.publishers.errors import StoreUnavailableError
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.sink_properties import ICEBERG_CATALOG

BASIC = {
    "aws.credentials.provider": "BASIC",
    "aws.credentials.provider.basic.accesskeyid": "AKIDEXAMPLE",
    "aws.credentials.provider.basic.secretkey": "s",
}


@pytest.fixture(autouse=True)
def _no_credentials(monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))


def table_with(catalogue, **given):
    of_catalogue = {ICEBERG_CATALOG.key + name: value for name, value in catalogue.items()}
    return IcebergTable("db.t", Properties({"aws.region": "us-east-1", **given, **of_catalogue}))


@pytest.mark.parametrize("name", ["glue.region", "client.region"])
async def test_a_catalogue_in_another_region_is_called_there(name):
    table = table_with({"type": "glue", name: "eu-west-1"}, **BASIC)
    await table.refresh()
    assert table._found["glue.endpoint"] == "https://glue.eu-west-1.amazonaws.com"


async def test_a_catalogue_with_keys_of_its_own_needs_no_others():
    table = table_with({"type": "glue", "glue.access-key-id": "A", "glue.secret-access-key": "s"})
    await table.refresh()
    assert table._found["glue.endpoint"] == "https://glue.us-east-1.amazonaws.com"


@pytest.mark.slow
async def test_a_moment_without_sts_is_one_without_the_store(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    role = {
        "aws.credentials.provider": "ASSUME_ROLE",
        "aws.credentials.provider.role.arn": "arn:aws:iam::123456789012:role/r",
        "aws.credentials.provider.role.stsendpoint": "http://127.0.0.1:9",
    }
    with pytest.raises(StoreUnavailableError, match=r"the credentials for glue cannot be found now"):
        await table_with({"type": "glue"}, **role).refresh()


def test_files_that_are_read_without_a_signature_need_no_keys():
    catalogue = {
        "type": "in-memory",
        "warehouse": "s3://b/w",
        "s3.anonymous": "true",
        "s3.endpoint": "http://127.0.0.1:9",
    }
    files = ObjectFileIO(table_with(catalogue)._properties)
    assert files.place("s3://b/w/x")[1] == "w/x"
