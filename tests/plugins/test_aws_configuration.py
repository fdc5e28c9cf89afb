"""Every way to configure AWS reaches everything of a job that calls it, as it reaches the AWS command line."""

import asyncio
import json
import os
import secrets
from collections import namedtuple
from datetime import UTC, datetime, timedelta

import boto3
import pytest

import recordpublisher as rp
from recordpublisher.plugins.sinks.files.jsonl_sink import JsonlSink
from recordpublisher.plugins.sinks.files.parquet_sink import ParquetSink
from recordpublisher.plugins.sinks.tables.delta import DeltaSink
from recordpublisher.plugins.sinks.tables.iceberg import IcebergSink
from recordpublisher.plugins.spark.python_worker import worker_loop
from recordpublisher.plugins.stores.by_location import conditional_store_of
from recordpublisher.plugins.stores.obstore_client import s3_access, s3_options
from recordpublisher.plugins.stores.spark_read_claims import read_claim_store_of
from recordpublisher.publishers.kinesis.sdk.aws_service import AwsAccess, AwsService
from recordpublisher.publishers.properties.job_properties import STATE_ENDPOINT

from .sinks.tables.lake_tables import number
from fakes.batches import batch
from s3.aws_front import serve_aws
from servers.atomic_stores import KEY, SECRET, serve_versitygw

PREFIX = "aws.credentials.provider"
PROFILE = "region = us-east-1\naws_access_key_id = AKRIGHT\naws_secret_access_key = s\n"
OTHER = "AKOTHER"
CREDENTIALS = namedtuple("Credentials", ["access_key", "secret_key", "token", "expires"])


@pytest.fixture(scope="module")
def front(tmp_path_factory):
    with serve_aws(tmp_path_factory.mktemp("aws")) as front:
        yield front


@pytest.fixture
def configure(front, tmp_path, monkeypatch):
    """Configures AWS in one way; returns the properties of it."""
    names = {name for name in os.environ if name.startswith("AWS_") or name.lower().endswith("_proxy")}
    for name in names | {"REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"}:
        monkeypatch.setenv(name, "")  # so that what a sink sets is removed too
        monkeypatch.delenv(name)
    environment = {
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    def configured(way):
        keys = {"AWS_ACCESS_KEY_ID": "AKRIGHT", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "us-east-1"}
        profile = {"AWS_PROFILE": "x"}
        command = f"echo '{json.dumps({'Version': 1, 'AccessKeyId': 'AKRIGHT', 'SecretAccessKey': 's'})}'"
        services = "".join(f"{name} =\n  endpoint_url = {front.http}\n" for name in ("s3", "dynamodb", "glue"))
        environment, config, properties = {
            "AWS_ENDPOINT_URL": (keys | {"AWS_ENDPOINT_URL": front.http}, "", {}),
            "AWS_ENDPOINT_URL_S3": (
                keys
                | {f"AWS_ENDPOINT_URL_{name}": front.http for name in ("S3", "DYNAMODB", "GLUE")}
                | {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"},
                "",
                {},
            ),
            "profile, endpoint_url": (profile, f"[profile x]\n{PROFILE}endpoint_url = {front.http}\n", {}),
            "profile, services": (profile, f"[profile x]\n{PROFILE}services = l\n[services l]\n{services}", {}),
            "property profile, services": (
                keys | {"AWS_ACCESS_KEY_ID": OTHER},
                f"[profile x]\n{PROFILE}services = l\n[services l]\n{services}",
                {PREFIX: "PROFILE", f"{PREFIX}.profile.name": "x"},
            ),
            "credential_process": (
                profile | {"AWS_ENDPOINT_URL": front.http},
                f"[profile x]\nregion = us-east-1\ncredential_process = {command}\n",
                {},
            ),
            "properties": (
                {"AWS_ACCESS_KEY_ID": OTHER, "AWS_SECRET_ACCESS_KEY": "s"},
                "",
                {
                    "aws.region": "us-east-1",
                    f"{PREFIX}.basic.accesskeyid": "AKRIGHT",
                    f"{PREFIX}.basic.secretkey": "s",
                    STATE_ENDPOINT.key: front.http,
                    "flink.deserializer.glue.endpoint": front.http,
                },
            ),
            "AWS_CA_BUNDLE": (keys | {"AWS_ENDPOINT_URL": front.https, "AWS_CA_BUNDLE": front.ca}, "", {}),
            "profile, ca_bundle": (
                profile,
                f"[profile x]\n{PROFILE}endpoint_url = {front.https}\nca_bundle = {front.ca}\n",
                {},
            ),
            "proxy": (
                keys | {"AWS_ENDPOINT_URL": "http://aws.test", "HTTP_PROXY": front.proxy, "http_proxy": front.proxy},
                "",
                {},
            ),
        }[way]
        (tmp_path / "config").write_text(config)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        front.signers.clear()
        front.tokens.clear()
        front.proxied = 0
        return properties

    return configured


WAYS = [
    "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "profile, endpoint_url", "profile, services", "property profile, services",
    "credential_process", "properties", "AWS_CA_BUNDLE", "profile, ca_bundle", "proxy",
]  # fmt: skip


async def write_one(sink):
    """What a job does with a sink: write, stage, commit."""
    await sink.open(rp.SinkContext())
    await sink.begin("job.0.1")
    await sink.write(batch(b"a", b"b"))
    await sink.publish([await sink.stage(number(1))])
    assert await sink.leftovers([]) == []
    await sink.close()


async def jsonl(place, properties, folder):
    await write_one(JsonlSink(rp.Properties({"flink.sink.jsonl.path": place, **properties})))


async def parquet(place, properties, folder):
    await write_one(ParquetSink(rp.Properties({"flink.sink.parquet.path": place, **properties})))


async def delta(place, properties, folder):
    sink = DeltaSink(rp.Properties({"flink.sink.delta.uri": place, **properties}))
    await write_one(sink)
    await sink.entries().put_if_absent("worker-0", b"{}")
    await sink.entries().close()


async def iceberg(place, properties, folder):
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": place}
    given = {f"flink.sink.iceberg.catalog.{name}": value for name, value in catalog.items()}
    given |= {"flink.sink.iceberg.table": "lake.orders", "flink.state.uri": str(folder / "state")}
    await write_one(IcebergSink(rp.Properties({**given, **properties})))


async def iceberg_in_glue(place, properties, folder):
    catalog = {"type": "glue", "warehouse": place}
    if endpoint := properties.get(STATE_ENDPOINT.key):  # flink.state.endpoint is that of S3 and DynamoDB
        catalog["glue.endpoint"] = endpoint
    given = {f"flink.sink.iceberg.catalog.{name}": value for name, value in catalog.items()}
    given |= {"flink.sink.iceberg.table": f"l{secrets.token_hex(4)}.orders", "flink.state.uri": str(folder / "state")}
    await write_one(IcebergSink(rp.Properties({**given, **properties})))


async def store(location, properties):
    made = conditional_store_of(location, "flink.state.uri", rp.Properties(properties))
    version = await made.put_if_absent("a", b"1")
    assert (await made.get("a")).version == version
    await made.close()


async def state_in_s3(place, properties, folder):
    await store(f"{place}/state", properties)


async def state_in_dynamodb(place, properties, folder):
    await store(f"dynamodb://t{secrets.token_hex(4)}/job", properties)


async def claims_of_spark(place, properties, folder):
    store = read_claim_store_of(f"{place}/claims", rp.Properties(properties), worker_loop().run)
    await asyncio.to_thread(store.write_marker, "query", "token")
    assert await asyncio.to_thread(store.has_marker, "query", "token")
    await asyncio.to_thread(store.close)


async def glue(place, properties, folder):
    service = AwsService("glue", rp.Properties(properties), properties.get("flink.deserializer.glue.endpoint"))
    await service.call("ListRegistries", lambda response: response["Registries"])
    await service.close()


CALLERS = [jsonl, parquet, delta, iceberg, iceberg_in_glue, state_in_s3, state_in_dynamodb, claims_of_spark, glue]


CELLS = [
    pytest.param(
        way, caller, id=f"{caller.__name__}, {way}", marks=() if (place + column) % 9 == 0 else pytest.mark.slow
    )
    for place, way in enumerate(WAYS)
    for column, caller in enumerate(CALLERS)
]


@pytest.mark.parametrize(("way", "caller"), CELLS)
async def test_each_caller_follows_each_way(front, configure, tmp_path, way, caller):
    properties = configure(way)
    await caller(f"s3://bucket/{secrets.token_hex(4)}", properties, tmp_path)
    assert (front.signers, front.tokens) == ({"AKRIGHT"}, {None})
    assert (front.proxied > 0) == (way == "proxy")


@pytest.mark.parametrize("caller", [jsonl, iceberg, state_in_s3], ids=lambda caller: caller.__name__)
async def test_a_token_of_other_credentials_in_the_environment_is_not_used(
    front, configure, tmp_path, monkeypatch, caller
):
    properties = configure("properties")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of AKOTHER")
    await caller(f"s3://bucket/{secrets.token_hex(4)}", properties, tmp_path)
    assert (front.signers, front.tokens) == ({"AKRIGHT"}, {None})


async def test_delta_refuses_such_a_token_which_its_client_would_use(configure, tmp_path, monkeypatch):
    properties = configure("properties")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of AKOTHER")
    with pytest.raises(rp.ConfigurationError, match=r"AWS_SESSION_TOKEN.*other credentials than the job's"):
        await delta(f"s3://bucket/{secrets.token_hex(4)}", properties, tmp_path)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"AWS_USE_FIPS_ENDPOINT": "true"},
        {"AWS_USE_DUALSTACK_ENDPOINT": "true"},
        {"AWS_USE_FIPS_ENDPOINT": "true", "AWS_USE_DUALSTACK_ENDPOINT": "true"},
        {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"},
        {"AWS_REGION": "cn-north-1"},
    ],
)
async def test_other_clients_go_where_the_sdk_goes(configure, monkeypatch, environment):
    properties = configure("profile, services") | {"aws.region": environment.get("AWS_REGION", "us-east-1")}
    monkeypatch.delenv("AWS_PROFILE")
    for name, value in {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "s", **environment}.items():
        monkeypatch.setenv(name, value)
    found = await AwsAccess("s3", rp.Properties(properties)).refresh()
    client = boto3.Session().client("s3", region_name=properties["aws.region"])
    assert (found.endpoint, found.region) == (client.meta.endpoint_url, properties["aws.region"])
    client.close()


@pytest.mark.parametrize("caller", [delta, iceberg, iceberg_in_glue], ids=lambda caller: caller.__name__)
async def test_credentials_that_end_are_renewed_for_every_client(front, configure, tmp_path, caller, monkeypatch):
    """Each has ended when it is used once more, so each use asks for others."""
    properties = configure("credential_process")
    count, ended = iter(range(1, 1000)), datetime.now(UTC) + timedelta(minutes=10)

    async def new_keys(self):
        return CREDENTIALS(f"AK{next(count)}", "s", None, ended)

    monkeypatch.setattr("recordpublisher.publishers.kinesis.sdk.aws_service.credentials_of", new_keys)
    await caller(f"s3://bucket/{secrets.token_hex(4)}", properties, tmp_path)
    assert len({signer for signer in front.signers if signer.startswith("AK") and signer != "AKRIGHT"}) > 1


async def test_obstore_is_given_the_credentials_that_were_found_last(configure, monkeypatch):
    count = iter(range(1, 9))

    async def new_keys(self):
        return CREDENTIALS(f"AK{next(count)}", "s", None, None)

    monkeypatch.setattr("recordpublisher.publishers.kinesis.sdk.aws_service.credentials_of", new_keys)
    access = s3_access(rp.Properties(configure("profile, endpoint_url")))
    await access.refresh()
    ask = s3_options(access)["credential_provider"]
    assert ask()["access_key_id"] == "AK1"
    await access.refresh()
    assert ask()["access_key_id"] == "AK2"
    assert ask()["expires_at"] <= datetime.now(UTC) + timedelta(minutes=5)


@pytest.fixture(scope="module")
def versitygw():
    with serve_versitygw() as url:
        yield url


@pytest.mark.servers
@pytest.mark.parametrize(
    "caller", [jsonl, parquet, delta, iceberg, state_in_s3, claims_of_spark], ids=lambda caller: caller.__name__
)
async def test_another_s3_server_needs_one_setting(versitygw, configure, tmp_path, monkeypatch, caller):
    """It checks signatures, and the conditions of writes."""
    configure("AWS_ENDPOINT_URL")
    for name, value in {"URL_S3": versitygw, "ACCESS_KEY_ID": KEY, "SECRET_ACCESS_KEY": SECRET}.items():
        monkeypatch.setenv(f"AWS_ENDPOINT_{name}" if name == "URL_S3" else f"AWS_{name}", value)
    await caller(f"s3://bucket/{secrets.token_hex(4)}", {}, tmp_path)
