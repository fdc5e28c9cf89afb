"""Where a job needs no AWS SDK for its credentials and endpoints, both are what the SDK would find."""

import pytest
from aiobotocore.config import AioConfig
from aiobotocore.session import AioSession

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.kinesis.access_without_sdk import access_without_sdk
from recordpublisher.publishers.kinesis.endpoints import HOST_KINDS
from recordpublisher.publishers.properties.properties import Properties

from servers.scripted_kinesis import PROPERTIES

REGIONS = {"aws": "eu-west-1", "aws-cn": "cn-north-1", "aws-us-gov": "us-gov-west-1"}
PROVIDER = "aws.credentials.provider"


@pytest.fixture(autouse=True)
def aws_files(monkeypatch, tmp_path):
    """The environment of a machine with nothing of AWS; returns the folder of its configuration files."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    return tmp_path


def access(given=PROPERTIES, region="eu-west-1", role=None):
    return access_without_sdk(Properties(given), region, role)


def keys(**given):
    """The keys that are known with these settings of the provider."""
    found = access({"aws.region": "eu-west-1", **{PROVIDER + key: value for key, value in given.items()}})
    return None if found is None else found.keys.access_key


class NotSentError(Exception):
    """The request was built."""


@pytest.fixture(scope="module")
def models():
    """The SDK's models and endpoints, which each session would read anew."""
    return AioSession().get_component("data_loader")


async def urls_of_the_sdk(models, region, api, *calls):
    """Where the SDK would send a call with each of these parameters."""
    session = AioSession()
    session.register_component("data_loader", models)
    session.set_credentials("key", "secret")
    urls = []

    def note(request, **_):
        urls.append(request.url)
        raise NotSentError

    config = AioConfig(retries={"total_max_attempts": 1})
    async with session.create_client("kinesis", region_name=region, config=config) as client:
        client.meta.events.register("before-send.kinesis.*", note)
        for parameters in calls:
            with pytest.raises(NotSentError):
                await client._make_api_call(api, parameters)
    return urls


FURTHER = {
    "DescribeStreamConsumer": {"ConsumerName": "c"},
    "GetRecords": {"ShardIterator": "x"},
    "GetShardIterator": {"ShardId": "s", "ShardIteratorType": "LATEST"},
    "PutRecords": {"Records": [{"Data": b"x", "PartitionKey": "k"}]},
}


@pytest.mark.parametrize("partition", REGIONS)
@pytest.mark.parametrize("api", HOST_KINDS)
async def test_calls_go_where_the_sdk_sends_them(partition, api, models):
    region = REGIONS[partition]
    arn = f"arn:{partition}:kinesis:{region}:123456789012:stream/orders"
    by_name = {} if api == "GetRecords" else {"StreamName": "orders"}
    if api == "DescribeStreamConsumer":  # needs the ARN
        by_name = {"StreamARN": arn}
    calls = [{**FURTHER.get(api, {}), **named} for named in (by_name, {"StreamARN": arn})]
    known = access(region=region)

    assert [known.url_of(by_name.get("StreamARN"), api), known.url_of(arn, api)] == await urls_of_the_sdk(
        models, region, api, *calls
    )


@pytest.mark.parametrize(
    "arn", ["arn:aws-cn:kinesis:eu-west-1:123456789012:stream/orders", "arn:aws:kinesis:eu-west-1::stream/orders"]
)
def test_an_arn_that_does_not_fit_is_left_to_the_sdk(arn):
    assert access().url_of(arn, "ListShards") is None


def test_a_given_endpoint_serves_every_call():
    known = access({**PROPERTIES, "aws.endpoint": "http://localhost:4567"}, region="anywhere")

    assert known.url_of("arn:aws:kinesis:eu-west-1::stream/orders", "GetRecords") == "http://localhost:4567/"


def test_an_endpoint_that_is_none_is_an_error():
    with pytest.raises(ConfigurationError, match=r"aws\.endpoint"):
        access({**PROPERTIES, "aws.endpoint": "localhost:4567"})


@pytest.mark.parametrize("region", ["us-iso-east-1", "eu-isoe-west-1", "mars-north-1"])
def test_regions_of_other_partitions_are_left_to_the_sdk(region):
    assert access(region=region) is None


@pytest.mark.parametrize(
    "given",
    [
        {"aws.http.client": "SDK"},
        {"flink.stream.recordpublisher": "EFO"},
        {"flink.stream.recordpublisher": "efo"},
        {f"{PROVIDER}.basic.secretkey": "line\nend"},
    ],
)
def test_what_needs_or_wants_the_sdk_gets_it(given):
    assert access({**PROPERTIES, **given}) is None


def test_a_role_is_assumed_by_the_sdk():
    assert access(role="arn:aws:iam::123456789012:role/reader") is None


@pytest.mark.parametrize(
    "variable",
    [
        "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
        "AWS_USE_FIPS_ENDPOINT",
        "AWS_A_NEW_VARIABLE",
        "HTTPS_PROXY",
        "http_proxy",
    ],
)
def test_a_variable_that_may_change_where_calls_go_needs_the_sdk(variable, monkeypatch):
    monkeypatch.setenv(variable, "http://localhost:9")

    assert access() is None


@pytest.mark.parametrize(
    "variable",
    [
        "AWS_ENDPOINT_URL_DYNAMODB",
        "AWS_EC2_METADATA_DISABLED",
        "NO_PROXY",
        "AWS_LAMBDA_FUNCTION_NAME",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    ],
)
def test_other_variables_do_not(variable, monkeypatch):
    monkeypatch.setenv(variable, "x")

    assert access() is not None


def test_the_endpoint_of_the_environment_is_known(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://localhost:1")
    assert access().endpoint == "http://localhost:1"
    monkeypatch.setenv("AWS_ENDPOINT_URL_KINESIS", "http://localhost:2")
    assert access().endpoint == "http://localhost:2"
    assert access({**PROPERTIES, "aws.endpoint": "http://localhost:3"}).endpoint == "http://localhost:3"
    monkeypatch.setenv("AWS_ENDPOINT_URL_KINESIS", "localhost")  # the SDK's error says what is wrong
    assert access() is None


def test_models_of_the_user_are_read_by_the_sdk(aws_files):
    (aws_files / ".aws" / "models").mkdir(parents=True)

    assert access() is None


def test_where_there_is_no_home_there_are_no_files(monkeypatch):
    for name in ("HOME", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)  # a container with a user id of nobody

    assert access() is not None


def test_keys_of_the_environment_come_before_the_default_profile_and_after_a_named_one(monkeypatch, aws_files):
    (aws_files / "credentials").write_text(
        "[default]\naws_access_key_id=FILE\naws_secret_access_key=s\n[work]\naws_access_key_id=WORK\naws_secret_access_key=s\n"
    )
    assert keys() == "FILE"
    assert keys(**{"": "ENV_VAR"}) is None
    monkeypatch.setenv("AWS_PROFILE", "work")
    assert keys() == "WORK"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ENVIRONMENT")
    assert keys() is None  # half of them: the SDK's error says so
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    assert keys() == keys(**{"": "ENV_VAR"}) == "ENVIRONMENT"
    assert keys(**{"": "PROFILE", ".profile.name": "work"}) == keys(**{".profile.name": "work"}) == "WORK"
    assert keys(**{"": "PROFILE"}) is None
    assert keys(**{".basic.accesskeyid": "BASIC", ".basic.secretkey": "s"}) == "BASIC"


def test_providers_that_renew_credentials_are_the_sdks():
    assert keys(**{"": "WEB_IDENTITY_TOKEN"}) is None
    assert keys(**{"": "ASSUME_ROLE", ".role.arn": "arn:aws:iam::123456789012:role/reader"}) is None
