import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from botocore.exceptions import CredentialRetrievalError

from recordpublisher.publishers.errors import ConfigurationError, RecordPublisherError, TransientError
from recordpublisher.publishers.kinesis import KinesisClient
from recordpublisher.publishers.kinesis.credentials_without_sdk import provider_name
from recordpublisher.publishers.kinesis.sdk import private_parts
from recordpublisher.publishers.kinesis.sdk.credentials import profile_session
from recordpublisher.publishers.kinesis.sdk.session import CheckedCredentials
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.testing import run_virtual

from processes.process_faults import is_alive
from servers.scripted_kinesis import PROPERTIES

PREFIX = "aws.credentials.provider"


@pytest.fixture(autouse=True)
def no_aws_environment(monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


class Service:
    """Kinesis and STS at one address. Keeps the access keys that signed."""

    def __init__(self):
        self.signed_by = []
        self.sts_requests = []

    async def handle(self, request):
        if "X-Amz-Target" not in request.headers:
            return await self._sts(request)
        self.signed_by.append(request.headers["Authorization"].partition("Credential=")[2].partition("/")[0])
        self.token = request.headers.get("X-Amz-Security-Token")
        return web.json_response({"Shards": []})

    async def pod_identity(self, request):
        """The agent of EKS Pod Identity, which reads the pod's token."""
        self.pod_token = request.headers["Authorization"]
        names = {"AccessKeyId": "PODKEY", "SecretAccessKey": "s", "Token": "t", "Expiration": "2099-01-01T00:00:00Z"}
        return web.json_response(names)

    async def _sts(self, request):
        parameters = dict(await request.post())
        self.sts_requests.append(parameters)
        action = parameters["Action"]
        return web.Response(
            content_type="text/xml",
            text=f"""<{action}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><{action}Result><Credentials>
            <AccessKeyId>ROLEKEY</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>roletoken</SessionToken>
            <Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></{action}Result></{action}Response>""",
        )


@asynccontextmanager
async def service():
    stub = Service()
    app = web.Application()
    app.router.add_post("/", stub.handle)
    app.router.add_get("/v1/credentials", stub.pod_identity)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    stub.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield stub
    finally:
        await runner.cleanup()


async def list_with(stub, **given):
    properties = {"aws.region": "eu-west-1", "aws.endpoint": stub.url}
    properties |= {f"{PREFIX}{key}": value for key, value in given.items()}
    async with KinesisClient(Properties(properties)) as client:
        await client.list_shards("orders")


async def test_basic_is_the_default_when_both_keys_are_set():
    assert provider_name(Properties(PROPERTIES)) == "BASIC"
    async with service() as stub:
        await list_with(stub, **{".basic.accesskeyid": "BASICKEY", ".basic.secretkey": "s", ".basic.sessiontoken": "t"})
    assert stub.signed_by == ["BASICKEY"]
    assert stub.token == "t"


@pytest.mark.parametrize(
    ("given", "missing"), [(".basic.accesskeyid", ".basic.secretkey"), (".basic.secretkey", ".basic.accesskeyid")]
)
async def test_one_basic_key_alone_names_the_other(given, missing):
    async with service() as stub:
        with pytest.raises(ConfigurationError) as raised:
            await list_with(stub, **{given: "X"})
    assert str(raised.value).startswith(
        f"property '{PREFIX}{missing}' is required: needed together with {PREFIX}{given}"
    )


async def test_env_var_reads_the_environment_and_nothing_else(monkeypatch, tmp_path):
    (tmp_path / "credentials").write_text("[default]\naws_access_key_id=FILEKEY\naws_secret_access_key=s\n")
    async with service() as stub:
        with pytest.raises(ConfigurationError, match=PREFIX):
            await list_with(stub, **{"": "ENV_VAR"})
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ENVKEY")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
        await list_with(stub, **{"": "ENV_VAR"})
    assert stub.signed_by == ["ENVKEY"]


async def test_a_profile_is_read_from_the_given_file(tmp_path):
    path = tmp_path / "mine"
    path.write_text("[work]\naws_access_key_id=PROFILEKEY\naws_secret_access_key=s\n")
    async with service() as stub:
        await list_with(stub, **{"": "PROFILE", ".profile.name": "work", ".profile.path": str(path)})
    assert stub.signed_by == ["PROFILEKEY"]


async def test_auto_is_the_sdks_chain(tmp_path):
    (tmp_path / "credentials").write_text("[default]\naws_access_key_id=FILEKEY\naws_secret_access_key=s\n")
    async with service() as stub:
        await list_with(stub)
    assert stub.signed_by == ["FILEKEY"]


async def test_a_role_is_assumed_with_the_basic_keys_once():
    role = {
        ".role.arn": "arn:aws:iam::123456789012:role/reader",
        ".role.externalid": "ext",
        ".role.sessionname": "mine",
    }
    keys = {".basic.accesskeyid": "BASICKEY", ".basic.secretkey": "s"}
    async with service() as stub:
        await list_with(stub, **{"": "ASSUME_ROLE", ".role.stsendpoint": stub.url, **role, **keys})
    assert stub.signed_by == ["ROLEKEY"]
    assert stub.token == "roletoken"
    (sent,) = stub.sts_requests
    assert (sent["RoleArn"], sent["ExternalId"], sent["RoleSessionName"]) == (role[".role.arn"], "ext", "mine")


@pytest.mark.parametrize("of", ["theirs", "210987654321"], ids=["by name", "by account"])
async def test_the_role_of_a_stream_signs_the_calls_about_it_and_no_others(of):
    ours, theirs = (
        f"arn:aws:kinesis:eu-west-1:{account}:stream/{name}"
        for name, account in (("ours", "123456789012"), ("theirs", "210987654321"))
    )
    given = {
        ".basic.accesskeyid": "BASICKEY",
        ".basic.secretkey": "s",
        f".role.arn.{of}": "arn:aws:iam::210987654321:role/r",
    }
    async with service() as stub:
        given[".role.stsendpoint"] = stub.url
        properties = {"aws.endpoint": stub.url} | {f"{PREFIX}{key}": value for key, value in given.items()}
        async with KinesisClient(Properties(properties), [ours, theirs]) as client:
            for stream in (ours, theirs, "theirs"):
                await client.list_shards(stream)
    assert stub.signed_by == ["BASICKEY", "ROLEKEY", "ROLEKEY"]
    assert [sent["RoleArn"] for sent in stub.sts_requests] == ["arn:aws:iam::210987654321:role/r"]


@pytest.mark.parametrize(
    "given",
    [
        {"": "ASSUME_ROLE", ".role.arn": "arn:aws:iam::123456789012:role/r"},
        {"": "WEB_IDENTITY_TOKEN", ".role.arn": "arn:aws:iam::123456789012:role/r", ".webidentitytoken.file": "token"},
    ],
)
async def test_a_role_is_assumed_with_the_settings_of_the_chosen_profile(tmp_path, monkeypatch, given):
    monkeypatch.setenv("AWS_PROFILE", "gone")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "token").write_text("the-token")
    async with service() as stub:
        (tmp_path / "config").write_text(
            f"[profile x]\naws_access_key_id=FILEKEY\naws_secret_access_key=s\nservices=l\n[services l]\nsts=\n  endpoint_url={stub.url}\n"
        )
        await list_with(stub, **{".profile.name": "x", **given})
    assert (stub.signed_by, len(stub.sts_requests)) == (["ROLEKEY"], 1)


async def test_a_configuration_file_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "config").write_text("[default]\nregion=a\nregion=b\n")
    with pytest.raises(ConfigurationError, match=r"AWS_CONFIG_FILE.*config"):
        profile_session(Properties())


def test_c2_a_role_for_a_stream_that_is_given_by_name_is_an_error():
    role = {f"{PREFIX}.role.arn.orders": "arn:aws:iam::210987654321:role/r"}
    with pytest.raises(ConfigurationError, match=r"role\.arn\.orders.*Give the stream by its ARN"):
        KinesisClient(Properties({"aws.region": "eu-west-1", **role}), ["orders"])


async def test_a_web_identity_token_is_exchanged_for_a_role(tmp_path):
    (tmp_path / "token").write_text("the-token")
    role = {".role.arn": "arn:aws:iam::123456789012:role/reader", ".webidentitytoken.file": str(tmp_path / "token")}
    async with service() as stub:
        await list_with(stub, **{"": "WEB_IDENTITY_TOKEN", ".role.stsendpoint": stub.url, **role})
    assert stub.signed_by == ["ROLEKEY"]
    assert stub.sts_requests[0]["WebIdentityToken"] == "the-token"


async def test_the_default_reads_what_eks_pod_identity_sets_in_a_pod(monkeypatch, tmp_path):
    (tmp_path / "token").write_text("the-token")
    async with service() as stub:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{stub.url}/v1/credentials")
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))
        await list_with(stub)
    assert (stub.signed_by, stub.pod_token) == (["PODKEY"], "the-token")


async def test_the_default_reads_what_a_service_account_with_a_role_sets_in_a_pod(monkeypatch, tmp_path):
    (tmp_path / "token").write_text("the-token")
    async with service() as stub:
        monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
        monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/reader")
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", stub.url)
        await list_with(stub)
    assert (stub.signed_by, stub.sts_requests[0]["WebIdentityToken"]) == (["ROLEKEY"], "the-token")


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({"": "BASIC"}, ".basic.accesskeyid"),
        ({"": "BASIC", ".basic.accesskeyid": "a"}, ".basic.secretkey"),
        ({"": "PROFILE"}, ".profile.name"),
        ({"": "PROFILE", ".profile.name": "missing"}, ".profile.name"),
        ({"": "ASSUME_ROLE"}, ".role.arn"),
        ({"": "WEB_IDENTITY_TOKEN", ".role.arn": "r"}, ".webidentitytoken.file"),
    ],
)
def test_c2_a_provider_without_a_required_property_fails_at_construction(given, missing):
    properties = {"aws.region": "eu-west-1"} | {f"{PREFIX}{key}": value for key, value in given.items()}
    with pytest.raises(ConfigurationError) as raised:
        KinesisClient(Properties(properties))
    assert raised.value.key == PREFIX + missing


async def test_a_missing_token_file_is_an_error_with_its_property():
    role = {".role.arn": "arn:aws:iam::123456789012:role/reader", ".webidentitytoken.file": "/nowhere"}
    async with service() as stub:
        with pytest.raises(ConfigurationError, match=r"webidentitytoken\.file.*/nowhere"):
            await list_with(stub, **{"": "WEB_IDENTITY_TOKEN", ".role.stsendpoint": stub.url, **role})


async def test_missing_credentials_are_a_configuration_error():
    async with service() as stub:
        with pytest.raises(ConfigurationError, match=PREFIX):
            await list_with(stub)


def test_c3_secrets_are_never_shown():
    try:
        client = KinesisClient(Properties(PROPERTIES))
    except RecordPublisherError as error:
        pytest.fail(str(error))
    assert "verysecret" not in repr(client) + repr(vars(client))


def printed_by_a_process(tmp_path, **fields):
    """What a credential_process prints: keys that have the given fields."""
    keys = {"Version": 1, "AccessKeyId": "PROCESSKEY", "SecretAccessKey": "s", **fields}
    (tmp_path / "response").write_text(json.dumps(keys))


@asynccontextmanager
async def client_of_a_process(tmp_path, stub):
    """A client whose credentials are what the file `response` holds."""
    (tmp_path / "config").write_text(f"[profile p]\ncredential_process = cat {tmp_path / 'response'}\n")
    given = {key: value for key, value in PROPERTIES.items() if not key.startswith(PREFIX)}
    given |= {"aws.endpoint": stub.url, PREFIX: "PROFILE", f"{PREFIX}.profile.name": "p"}
    async with KinesisClient(Properties(given), ["orders"]) as client:
        yield client


@pytest.mark.parametrize("printed", ["no JSON", "[]", "null", "7", '"text"', "{}", "[" * 100_000])
async def test_a_credential_process_without_a_json_object_raises_our_error(tmp_path, printed):
    (tmp_path / "response").write_text(printed)
    async with service() as stub, client_of_a_process(tmp_path, stub) as client:
        with pytest.raises(TransientError, match="CredentialRetrievalError"):
            await client.list_shards("orders")


@pytest.mark.parametrize(
    "field",
    [
        {"AccessKeyId": 5},
        {"AccessKeyId": "two\r\nlines"},
        {"SecretAccessKey": None},
        {"SecretAccessKey": ["s"]},
        {"SessionToken": 7},
        {"SessionToken": "two\r\nlines"},
        {"Expiration": "no time"},
        {"Expiration": 7},
        {"Expiration": "2020-01-01T00:00:00Z"},
    ],
    ids=str,
)
async def test_keys_of_a_credential_process_that_cannot_be_used_raise_our_error_until_they_can(tmp_path, field):
    async with service() as stub, client_of_a_process(tmp_path, stub) as client:
        printed_by_a_process(tmp_path, **field)
        with pytest.raises(TransientError, match="CredentialRetrievalError"):
            await client.list_shards("orders")
        printed_by_a_process(tmp_path, Expiration="2099-01-01T00:00:00Z")
        await client.list_shards("orders")
        assert stub.signed_by == ["PROCESSKEY"]


@pytest.mark.parametrize("printed", ["no JSON", "[]", "7", '{"Version": 1, "AccessKeyId": 5, "SecretAccessKey": "s"}'])
async def test_a_renewal_by_a_credential_process_without_usable_keys_raises_our_error(tmp_path, printed):
    """The first keys have expired when they are used: the SDK renews them at the first signature."""
    printed_by_a_process(tmp_path, Expiration="2020-01-01T00:00:00Z")
    (tmp_path / "config").write_text(f"[profile p]\ncredential_process = cat {tmp_path / 'response'}\n")
    credentials = await profile_session(Properties({f"{PREFIX}.profile.name": "p"})).get_credentials()
    (tmp_path / "response").write_text(printed)
    with pytest.raises(CredentialRetrievalError):
        await credentials.get_frozen_credentials()


async def until(condition):
    """Wait, for 5 s at most."""
    for _ in range(250):
        if condition():
            return
        await asyncio.sleep(0.02)
    pytest.fail("it did not come true")


@pytest.fixture
def hanging(tmp_path):
    """A `credential_process` that has started a process, which the file `pids` names, and hangs."""
    script = tmp_path / "helper"
    script.write_text(
        f"#!/bin/sh\nsleep 100 &\necho $! > {tmp_path}/new\nmv {tmp_path}/new {tmp_path}/pids\nsleep 101\n"
    )
    script.chmod(0o755)
    return script


@pytest.mark.parametrize("source", ["", "[profile role]\nrole_arn = arn:aws:iam::1:role/r\nsource_profile = p\n"])
@pytest.mark.parametrize("ends", ["by its time", "by cancellation"])
async def test_a_credential_process_that_hangs_ends_with_all_that_it_has_started(
    tmp_path, hanging, monkeypatch, source, ends
):
    monkeypatch.setattr(private_parts, "PROCESS_SECONDS", 1 if ends == "by its time" else 60)
    pids = tmp_path / "pids"
    (tmp_path / "config").write_text(f"[profile p]\ncredential_process = {hanging}\n{source}")
    session = profile_session(Properties({f"{PREFIX}.profile.name": "role" if source else "p"}))

    loading = asyncio.create_task(session.get_credentials())
    if source:
        loading = asyncio.create_task(frozen(loading))
    await until(pids.exists)
    if ends == "by cancellation":
        loading.cancel()
    await asyncio.wait([loading])

    await until(lambda: not is_alive(int(pids.read_text())))
    if ends == "by its time":
        assert "the credential_process has not ended within 1 s" in str(loading.exception())


async def test_a_credential_process_whose_start_is_cancelled_ends_with_all_that_it_has_started(
    tmp_path, hanging, monkeypatch
):
    """On a busy machine it runs long before asyncio has connected its pipes."""
    start, pids = asyncio.create_subprocess_exec, tmp_path / "pids"

    async def slow_start(*command, **options):
        process = await start(*command, **options)
        await until(pids.exists)
        await asyncio.sleep(0.1)
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", slow_start)
    (tmp_path / "config").write_text(f"[profile p]\ncredential_process = {hanging}\n")
    loading = asyncio.create_task(profile_session(Properties({f"{PREFIX}.profile.name": "p"})).get_credentials())
    await until(pids.exists)
    loading.cancel()
    await asyncio.wait([loading])

    assert loading.cancelled()
    await until(lambda: not is_alive(int(pids.read_text())))


async def frozen(loading):
    """A role is assumed when it is needed."""
    return await (await loading).get_frozen_credentials()


@pytest.mark.parametrize("name", ["accesskeyid", "secretkey", "sessiontoken"])
def test_control_characters_in_basic_credentials_are_refused_at_construction(name):
    given = {"aws.region": "eu-west-1", f"{PREFIX}.basic.accesskeyid": "a", f"{PREFIX}.basic.secretkey": "s"}
    given[f"{PREFIX}.basic.{name}"] = "text\r\nX-Evil: 1"
    with pytest.raises(ConfigurationError, match=f"basic.{name}") as raised:
        KinesisClient(Properties(given))
    assert "Evil" not in str(raised.value)


def test_credentials_that_expire_soon_are_not_renewed_for_each_request():
    """The SDK asks a `credential_process` of a minute again at each call."""

    class Renewed:
        access_key, secret_key, token, renewals = "a", "b", None, 0

        async def get_frozen_credentials(self):
            self.renewals += 1
            return self

    async def story():
        renewed = Renewed()
        checked = CheckedCredentials(renewed)
        for _ in range(100):
            await checked.get_frozen_credentials()
            await asyncio.sleep(0.1)
        return renewed.renewals

    assert run_virtual(story()) <= 3
