"""A token that the service takes for expired while it is valid by its date: the provider is asked once more, by every client."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

import recordpublisher as rp
from recordpublisher.publishers.errors import FatalKinesisError
from recordpublisher.publishers.kinesis.client import StreamTransports
from recordpublisher.publishers.kinesis.sdk.aws_service import AwsService
from recordpublisher.publishers.kinesis.sdk.transport import SdkTransport

PREFIX = "aws.credentials.provider"
EVENTS = {"ConsumerARN": "arn:aws:kinesis:eu-west-1:000000000000:stream/s/consumer/c:1", "ShardId": "shardId-0"}


class Service:
    """Kinesis, STS and DynamoDB at one address, which takes the keys in `expired` for expired. Roles get the key `role_key`."""

    def __init__(self, folder):
        self.folder = folder
        self.expired, self.signed_by, self.role_key = set(), [], "ROLE1"
        self.refusals = []  # errors of the next calls: code and message

    def provide(self, key):
        """What a `credential_process` gives from now on. It counts how often it was asked."""
        printed = {"Version": 1, "AccessKeyId": key, "SecretAccessKey": "s", "Expiration": "2099-01-01T00:00:00Z"}
        (self.folder / "keys").write_text(json.dumps({**printed, "SessionToken": "t"}))
        (self.folder / "provide").write_text(f"#!/bin/sh\necho >> {self.folder}/asked\ncat {self.folder}/keys\n")
        (self.folder / "provide").chmod(0o755)
        (self.folder / "config").write_text(f"[default]\ncredential_process = {self.folder}/provide\n")

    def write_file(self, key):
        text = f"[default]\naws_access_key_id={key}\naws_secret_access_key=s\naws_session_token=t\n"
        (self.folder / "credentials").write_text(text)

    @property
    def asked(self):
        return len((self.folder / "asked").read_text().split("\n")) - 1

    async def handle(self, request):
        key = request.headers["Authorization"].partition("Credential=")[2].partition("/")[0]
        if "X-Amz-Target" not in request.headers:
            return self._assumed() if key not in self.expired else web.Response(status=400, text="<Error/>")
        self.signed_by.append(key)
        if self.refusals:
            code, message = self.refusals.pop(0)
            return web.json_response({"__type": code, "message": message}, status=400)
        if key in self.expired:
            return web.json_response({"__type": "ExpiredTokenException", "message": "expired"}, status=400)
        if request.headers["X-Amz-Target"].endswith("SubscribeToShard"):
            return web.json_response({"__type": "ResourceInUseException", "message": "signed well"}, status=400)
        return web.json_response({"Shards": []})

    def _assumed(self):
        return web.Response(
            content_type="text/xml",
            text=f"""<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>
            <AccessKeyId>{self.role_key}</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>
            <Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>""",
        )


@pytest.fixture
async def service(monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    stub, app = Service(tmp_path), web.Application()
    app.router.add_post("/", stub.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    stub.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield stub
    await runner.cleanup()


def given(service, **more):
    own = {f"{PREFIX}{key}": value for key, value in more.items() if key.startswith(".") or not key}
    return rp.Properties({"aws.region": "eu-west-1", "aws.endpoint": service.url, **own})


@asynccontextmanager
async def transport(service, kind=SdkTransport, **more):
    made = kind(given(service, **more))
    try:
        yield made if kind is SdkTransport else made.for_stream(None)
    finally:
        await made.close()


async def test_every_call_that_is_refused_is_made_again_with_the_next_token_of_one_question(service):
    service.provide("KEY1")
    async with transport(service) as calls:
        await calls.call("ListShards", StreamName="s")
        service.expired, service.signed_by = {"KEY1"}, []
        service.provide("KEY2")
        await asyncio.gather(*(calls.call("ListShards", StreamName="s") for _ in range(20)))

    assert (service.signed_by.count("KEY1"), service.signed_by.count("KEY2")) == (20, 20)
    assert service.asked == 2


async def test_a_subscription_that_is_refused_is_made_again_with_the_next_token(service):
    service.provide("KEY1")
    service.expired = {"KEY1"}
    async with transport(service) as calls:
        await calls.endpoint_url()
        subscribing = calls._client("subscriptions")
        await subscribing  # its client has asked for the first token
        with pytest.raises(FatalKinesisError, match="expired"):
            await calls.subscribe("SubscribeToShard", **EVENTS, StartingPosition={"Type": "LATEST"})
        service.provide("KEY2")
        with pytest.raises(rp.RecordPublisherError, match="signed well"):
            await calls.subscribe("SubscribeToShard", **EVENTS, StartingPosition={"Type": "LATEST"})

    assert service.signed_by == ["KEY1", "KEY1", "KEY2"]


async def test_a_provider_without_another_token_is_asked_once_and_ends_the_call(service):
    service.provide("KEY1")
    service.expired = {"KEY1"}
    async with transport(service) as calls:
        with pytest.raises(FatalKinesisError, match="ExpiredTokenException"):
            await calls.call("ListShards", StreamName="s")

    assert service.signed_by == ["KEY1"]
    assert service.asked == 2


@pytest.mark.parametrize("kind", [SdkTransport, StreamTransports])
async def test_a_file_of_credentials_is_read_again(service, kind):
    service.write_file("KEY1")
    async with transport(service, kind) as calls:
        await calls.call("ListShards", StreamName="s")
        service.expired = {"KEY1"}
        service.write_file("KEY2")
        await calls.call("ListShards", StreamName="s")

    assert service.signed_by == ["KEY1", "KEY1", "KEY2"]


async def test_a_role_is_assumed_again_with_the_next_token_of_its_source(service):
    service.provide("SOURCE1")
    role = {".role.arn": "arn:aws:iam::1:role/r", ".role.stsendpoint": service.url}
    async with transport(service, **{"": "ASSUME_ROLE", **role}) as calls:
        await calls.call("ListShards", StreamName="s")
        service.expired, service.role_key = {"ROLE1", "SOURCE1"}, "ROLE2"
        service.provide("SOURCE2")
        await calls.call("ListShards", StreamName="s")

    assert service.signed_by == ["ROLE1", "ROLE1", "ROLE2"]


async def test_keys_of_the_properties_stay_and_the_environment_is_not_asked(service, monkeypatch):
    service.expired = {"BASIC"}
    service.write_file("OTHER")
    keys = {".basic.accesskeyid": "BASIC", ".basic.secretkey": "s", ".basic.sessiontoken": "t"}
    async with transport(service, **keys) as calls:
        for _ in range(2):
            with pytest.raises(FatalKinesisError, match="ExpiredTokenException"):
                await calls.call("ListShards", StreamName="s")

    assert service.signed_by == ["BASIC", "BASIC"]


async def test_another_service_is_called_again_too(service):
    service.provide("KEY1")
    stores = AwsService("dynamodb", given(service), service.url)
    await stores.call("ListTables", dict)
    service.expired = {"KEY1"}
    service.provide("KEY2")
    await stores.call("ListTables", dict)
    await stores.close()

    assert service.signed_by == ["KEY1", "KEY1", "KEY2"]


TOO_OLD = [
    (
        "InvalidSignatureException",
        "Signature expired: 20261130T000000Z is now earlier than 20261130T000500Z (... - 5 min.)",
    ),
    ("RequestExpired", "Request has expired."),
]


@pytest.mark.parametrize("refusal", TOO_OLD, ids=[code for code, _ in TOO_OLD])
@pytest.mark.parametrize("kind", [SdkTransport, StreamTransports])
async def test_a_call_during_which_the_machine_slept_is_signed_again(service, kind, refusal):
    """A request that was signed before the sleep arrives when its signature is too old: `clock.py` counts no such time, so it is sent."""
    service.write_file("KEY1")
    async with transport(service, kind) as calls:
        await calls.call("ListShards", StreamName="s")
        service.refusals = [refusal]
        await calls.call("ListShards", StreamName="s")
        service.refusals = [refusal] * 3
        with pytest.raises(FatalKinesisError, match="clock"):
            await calls.call("ListShards", StreamName="s")

    assert len(service.signed_by) == 5
    assert len(service.refusals) == 1


async def test_a_subscription_whose_signature_is_too_old_is_signed_again(service):
    service.write_file("KEY1")
    service.refusals = TOO_OLD[:1]
    async with transport(service) as calls:
        with pytest.raises(rp.RecordPublisherError, match="signed well"):
            await calls.subscribe("SubscribeToShard", **EVENTS, StartingPosition={"Type": "LATEST"})


async def test_a_wrong_secret_key_is_not_tried_again(service):
    service.write_file("KEY1")
    service.refusals = [("InvalidSignatureException", "The request signature we calculated does not match")] * 2
    async with transport(service) as calls:
        with pytest.raises(FatalKinesisError, match="the secret key is wrong"):
            await calls.call("ListShards", StreamName="s")

    assert len(service.signed_by) == 1
