"""GlueSchemas on virtual time, with a registry that fails and waits as the test says."""

import asyncio
from contextlib import asynccontextmanager
from uuid import UUID

import pytest
from botocore.exceptions import ClientError, NoCredentialsError

from recordpublisher import ConfigurationError, Properties, RetriesExhaustedError
from recordpublisher.plugins.deserializers import glue_schemas
from recordpublisher.plugins.deserializers.glue_schemas import GlueSchemas
from recordpublisher.publishers.kinesis.sdk.aws_service import AwsService
from recordpublisher.testing import run_virtual

IDS = [UUID(int=number).bytes for number in range(1, 6)]


def error(code, status=400):
    response = {"Error": {"Code": code, "Message": "words"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(response, "GetSchemaVersion")


class Registry:
    """A client of Glue: each call takes a second, and fails as long as there are errors."""

    def __init__(self, *errors):
        self.errors = list(errors)
        self.asked = []

    @asynccontextmanager
    async def open(self):
        yield self

    async def get_schema_version(self, SchemaVersionId):  # noqa: N803
        await asyncio.sleep(1)
        self.asked.append(UUID(SchemaVersionId).bytes)
        if self.errors:
            raise self.errors.pop(0)
        return {"DataFormat": "AVRO", "SchemaDefinition": "definition"}


def schemas(registry):
    async def decoder_for(data_format, definition):
        return lambda payload: (definition, payload)

    properties = Properties({"aws.region": "us-east-1"})
    return GlueSchemas(AwsService("glue", properties, None, open_client=registry.open), decoder_for)


class Batch:
    """Whatever may be referred to weakly."""


def test_a_throttled_fetch_is_tried_again():
    registry = Registry(error("ThrottlingException"), error("InternalServiceException", 500))
    made = schemas(registry)

    run_virtual(made.fetch(IDS[:1], Batch()))

    assert made.decoder(IDS[0])(b"x") == ("definition", b"x")
    assert registry.asked == IDS[:1] * 3


def test_a_registry_that_does_not_recover_ends_the_job():
    with pytest.raises(RetriesExhaustedError, match="GetSchemaVersion failed 11 times in a row"):
        run_virtual(schemas(Registry(*[error("InternalServiceException", 500)] * 99)).fetch(IDS[:1], Batch()))


def test_throttling_is_waited_for_and_ends_no_job():
    """Whoever may put records can use up the account's calls, by naming versions without end."""
    registry = Registry(*[error("ThrottlingException")] * 99)
    made = schemas(registry)

    run_virtual(made.fetch(IDS[:1], Batch()))

    assert made.decoder(IDS[0])(b"x") == ("definition", b"x")


def test_a_job_without_credentials_fails_and_takes_no_record_for_a_bad_one():
    with pytest.raises(ConfigurationError, match="credentials"):
        run_virtual(schemas(Registry(NoCredentialsError())).fetch(IDS[:1], Batch()))


def test_shards_that_need_one_schema_at_once_fetch_it_once():
    registry = Registry()
    made = schemas(registry)

    async def two_shards():
        await asyncio.gather(made.fetch(IDS[:2], Batch()), made.fetch(IDS[1:3], Batch()))

    run_virtual(two_shards())

    assert sorted(registry.asked) == IDS[:3]


def test_the_oldest_schemas_are_forgotten(monkeypatch):
    monkeypatch.setattr(glue_schemas, "MAX_SCHEMAS", 2)
    registry = Registry()
    made = schemas(registry)

    async def fetch():
        for each in (IDS[:2], IDS[2:3], IDS[1:2], IDS[:1]):
            await made.fetch(each, Batch())

    run_virtual(fetch())

    assert registry.asked == [*IDS[:3], IDS[0]]


def test_all_schemas_of_one_batch_are_kept(monkeypatch):
    monkeypatch.setattr(glue_schemas, "MAX_SCHEMAS", 2)
    made = schemas(Registry())

    run_virtual(made.fetch(IDS, Batch()))

    assert [made.decoder(each)(b"") for each in IDS] == [("definition", b"")] * 5


def test_the_schemas_of_a_batch_that_may_not_be_decoded_yet_are_kept_while_others_are_fetched(monkeypatch):
    monkeypatch.setattr(glue_schemas, "MAX_SCHEMAS", 1)
    made = schemas(Registry())
    batches = [Batch()]

    async def fetch():
        await made.fetch(IDS[:1], batches[0])
        await made.fetch(IDS[1:3], Batch())

    run_virtual(fetch())
    assert made.decoder(IDS[0])
    batches.clear()
    run_virtual(made.fetch(IDS[3:], Batch()))
    with pytest.raises(KeyError):
        made.decoder(IDS[0])


def test_a_shard_does_not_wait_for_the_versions_that_another_one_names():
    async def job():
        made = schemas(Registry())
        many = asyncio.ensure_future(made.fetch([UUID(int=number).bytes for number in range(100, 150)], Batch()))
        await asyncio.sleep(0.5)
        await made.fetch(IDS[:1], Batch())
        seconds = asyncio.get_running_loop().time()
        await many
        return seconds

    assert run_virtual(job()) == 1.5


def test_a_version_that_the_registry_did_not_have_is_asked_for_again_after_a_minute():
    """The answer may be older than the version: records that name it would be bad for as long as the process lives."""
    registry = Registry(error("EntityNotFoundException"))
    made = schemas(registry)

    async def job():
        await made.fetch(IDS[:1], Batch())
        await asyncio.sleep(30)
        await made.fetch(IDS[:1], Batch())
        with pytest.raises(ValueError, match="not in the registry"):
            made.decoder(IDS[0])(b"x")
        await asyncio.sleep(31)
        await made.fetch(IDS[:1], Batch())
        return made.decoder(IDS[0])(b"x")

    assert run_virtual(job()) == ("definition", b"x")
    assert registry.asked == IDS[:1] * 2


def test_after_many_versions_that_do_not_exist_the_registry_is_asked_slowly(caplog):
    async def job():
        unknown = Registry(*[error("EntityNotFoundException")] * 200)
        made = schemas(unknown)
        ids = [UUID(int=number).bytes for number in range(1, 151)]
        await made.fetch(ids, Batch())
        return asyncio.get_running_loop().time()

    assert run_virtual(job()) == 150 + 49  # a second for each call, and a pause before each above the limit
    assert "records name 101 schema versions that the registry does not have" in caplog.text
