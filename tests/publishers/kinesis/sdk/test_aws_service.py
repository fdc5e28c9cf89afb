"""AwsService: one client, one loader, and one guard round every call."""

import asyncio
from contextlib import asynccontextmanager, nullcontext
from types import SimpleNamespace

import pytest
from botocore.exceptions import ClientError

from recordpublisher.publishers.errors import FatalKinesisError, TransientError
from recordpublisher.publishers.kinesis.sdk.aws_service import AwsService
from recordpublisher.publishers.kinesis.sdk.credentials import session_with_credentials
from recordpublisher.publishers.properties.properties import Properties

from servers.scripted_kinesis import PROPERTIES


class Client:
    """A client of the SDK that answers with what it is given."""

    meta = SimpleNamespace(endpoint_url="http://proxy:3128")

    def __init__(self, answer):
        self.answer = answer

    async def scan(self, **parameters):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def service(answer):
    return AwsService("dynamodb", Properties(PROPERTIES), None, open_client=lambda: nullcontext(Client(answer)))


def error(code, status):
    response = {"Error": {"Code": code, "Message": "words"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(response, "Scan")


@pytest.mark.parametrize(
    "parse",
    [
        lambda response: response["Items"],
        lambda response: response["Count"].decode(),
        lambda response: [][response["Count"]],
        lambda response: int("x"),
        lambda response: 1 / response["Count"],
    ],
)
async def test_a_response_that_cannot_be_parsed_may_be_asked_for_again(parse):
    with pytest.raises(TransientError, match="Scan failed with MalformedResponse"):
        await service({"Count": 0}).call("Scan", parse)


@pytest.mark.parametrize(
    ("refused", "kind", "words"),
    [
        (error("404", 404), TransientError, "HTTP 404 without an error code, from http://proxy:3128"),
        (error("", 403), TransientError, "HTTP 403 without an error code, from http://proxy:3128"),
        (error("AccessDenied", 403), FatalKinesisError, "words"),
    ],
    ids=repr,
)
async def test_an_error_without_a_code_is_not_of_aws(refused, kind, words):
    with pytest.raises(kind, match=words):
        await service(refused).call("Scan", len)


async def test_a_client_that_is_opened_while_another_is_closed_stays_open():
    """As where the schemas of one shard are there, and another shard asks for its first."""
    is_open, may_close = set(), asyncio.Event()

    @asynccontextmanager
    async def open_client():
        client = Client({"Items": [1]})
        is_open.add(client)
        try:
            yield client
        finally:
            await may_close.wait()
            is_open.remove(client)

    aws = AwsService("dynamodb", Properties(PROPERTIES), None, open_client=open_client)
    await aws.call("Scan", len)
    closing = asyncio.create_task(aws.close())
    await asyncio.sleep(0)
    await aws.call("Scan", len)
    may_close.set()
    await closing
    assert is_open == {await aws._get_client()}
    await aws.close()
    assert not is_open


async def loader():
    session = session_with_credentials(Properties(PROPERTIES), "us-east-1")
    async with session.create_client("kinesis", region_name="us-east-1"):
        return session.get_component("data_loader")


async def test_the_sdks_models_are_loaded_once_for_each_data_path(monkeypatch, tmp_path):
    assert await loader() is await loader()
    monkeypatch.setenv("AWS_DATA_PATH", str(tmp_path))
    assert str(tmp_path) in (await loader()).search_paths
