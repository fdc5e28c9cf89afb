"""The private parts of the SDK that are used exist in the version that is installed: the newest, in `make newest-*`."""

import ast
import json
import re
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest
from aiobotocore.awsrequest import AioAWSResponse
from aiobotocore.config import AioConfig
from aiobotocore.credentials import (
    AioAssumeRoleCredentialFetcher,
    AioAssumeRoleProvider,
    AioProcessProvider,
    AioProfileProviderBuilder,
    AioRefreshableCredentials,
)
from aiobotocore.httpsession import AIOHTTPSession
from aiobotocore.parsers import AioJSONParser
from aiobotocore.session import AioSession
from botocore.exceptions import EndpointConnectionError

from recordpublisher.publishers.errors import FatalKinesisError, TransientError
from recordpublisher.publishers.kinesis.sdk.private_parts import http_session_of, tls_context_for

from processes.command_line import ROOT
from servers.scripted_kinesis import raw, stub_and_client

SOURCE = ROOT / "src/recordpublisher"
OF_CLASSES = [
    (AioJSONParser, "_do_parse"),
    (AioJSONParser, "_handle_json_body"),
    (AioJSONParser, "_inject_response_metadata"),
    (AioJSONParser, "_parse_body_as_json"),
    (AioJSONParser, "_parse_shape"),
    (AioAWSResponse, "_content_prop"),
    (AioSession, "_create_credential_resolver"),
    (AioProfileProviderBuilder, "_create_process_provider"),
]


def renewable():
    return AioRefreshableCredentials("key", "secret", None, datetime.now(UTC), lambda: None, "test")


OF_INSTANCES = {
    "AioRefreshableCredentials._expiry_time": renewable,
    "AioRefreshableCredentials._time_fetcher": renewable,
    "AioRefreshableCredentials._refresh_using": renewable,
    "AioAssumeRoleCredentialFetcher._cache": lambda: AioAssumeRoleCredentialFetcher(None, None, "arn"),
    "AioSession._credentials": AioSession,
    "AioProcessProvider._popen": lambda: AioProcessProvider("default", dict),
    "AioAssumeRoleProvider._profile_provider_builder": lambda: AioAssumeRoleProvider(dict, None, {}, "default"),
    "AIOHTTPSession._proxy_config": AIOHTTPSession,
    "AIOHTTPSession._sessions": AIOHTTPSession,
    "AioAWSResponse._content": lambda: AioAWSResponse("", 200, {}, None),
}
REACHING = {
    "publishers/kinesis/sdk/private_parts.py": "the AWS SDK",
    "publishers/kinesis/http1.py": "asyncio",
    "local/server.py": "h2 and hypercorn",
    "plugins/runtime/background_loop.py": "threading (nothing public runs before the pools are closed), and sys (a function that its "
    "documentation has for debuggers)",
    "plugins/sinks/kinesis/producer.py": "asyncio (the public function raises if there is no event loop, which costs time in each put)",
    "publishers/user_code.py": "asyncio (a name that its documentation has for those who make tasks)",
}
"""The only files that may use private attributes of other libraries."""


@pytest.mark.parametrize(("owner", "name"), OF_CLASSES, ids=lambda value: getattr(value, "__name__", value))
def test_a_method_that_is_replaced_exists_in_the_sdk(owner, name):
    assert hasattr(owner, name), f"{owner.__name__}.{name} is gone from the SDK: see sdk/private_parts.py"


@pytest.mark.parametrize("name", OF_INSTANCES)
async def test_an_attribute_that_is_used_exists_in_the_sdk(name):
    owner = OF_INSTANCES[name]()

    assert hasattr(owner, name.partition(".")[2]), f"{name} is gone from the SDK: see sdk/private_parts.py"


async def test_the_http_session_of_a_client_is_found_with_its_certificates():
    url = "http://127.0.0.1:9/"  # nobody listens: the SDK opens its HTTP session and cannot connect
    session = AioSession()
    session.set_credentials("key", "secret")
    config = AioConfig(retries={"total_max_attempts": 1})
    async with session.create_client("kinesis", region_name="eu-west-1", endpoint_url=url, config=config) as client:
        http = http_session_of(client)
        assert http is not None, "AioBaseClient._endpoint.http_session is gone from the SDK: see sdk/private_parts.py"
        assert tls_context_for(http, url) is None
        with pytest.raises(EndpointConnectionError):
            await client.list_streams()

        assert tls_context_for(http, url) is not None, (
            "the SDK keeps its SSLContext elsewhere: see sdk/private_parts.py"
        )


async def test_aiohttp_keeps_the_context_of_a_connector():
    connector = aiohttp.TCPConnector()
    try:
        assert hasattr(connector, "_ssl"), "TCPConnector._ssl is gone from aiohttp: see sdk/private_parts.py"
    finally:
        await connector.close()


def test_a_client_that_keeps_its_session_elsewhere_is_left_to_the_sdk():
    assert http_session_of(object()) is None
    assert tls_context_for(None, "https://localhost/") is None
    assert tls_context_for(object(), "https://localhost/") is None


def test_private_attributes_of_other_libraries_are_used_in_named_files_only():
    using = {str(file.relative_to(SOURCE)) for file in SOURCE.rglob("*.py") if foreign_privates(file)}

    assert using == set(REACHING)


MAY_REACH = re.compile(r"(?<!\bself)(?<!\bcls)\._(?!_)|attr\(")


def foreign_privates(file: Path) -> set[str]:
    """Private names that a file uses of objects other than its own: those that it neither defines nor assigns."""
    source = file.read_text()
    if MAY_REACH.search(source) is None:
        return set()
    tree = ast.parse(source)
    own = {"_exit", "_value_", "_replace", "_asdict", "_fields", "_make", "_SSLMethod"}  # public in fact, or of a type
    used = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            own.add(node.name)
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
            own.update(target.id for target in targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                own.update({node.attr} if isinstance(node.ctx, ast.Store) else ())
            elif not (isinstance(node.value, ast.Call) and ast.unparse(node.value) == "super()"):
                used.add(node.attr)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr", "setattr"):
            name = node.args[1]
            if (
                isinstance(name, ast.Constant)
                and str(name.value).startswith("_")
                and not str(name.value).startswith("__")
            ):
                used.add(name.value)
    return used - own


# The SDK trusts the types of the values in a response; here a wrong one is an error of this library.


SHARD = {"ShardId": "shardId-000000000001", "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "9"}}


@pytest.mark.parametrize("shards", [True, [7], [SHARD | {"HashKeyRange": "0-9"}]], ids=str)
async def test_listed_shards_of_a_wrong_type_are_a_malformed_response(shards):
    async with stub_and_client() as (stub, client):
        stub.script("ListShards", {"Shards": shards})
        with pytest.raises(TransientError, match="Malformed"):
            await client.list_shards("orders")


@pytest.mark.parametrize("key", [7, []], ids=str)
async def test_a_hash_key_of_a_wrong_type_is_a_malformed_response(key):
    async with stub_and_client() as (stub, client):
        keys = {"StartingHashKey": key, "EndingHashKey": "9"}
        stub.script("ListShards", {"Shards": [SHARD | {"HashKeyRange": keys}]})
        with pytest.raises(TransientError, match="Malformed"):
            await client.list_shards("orders")


@pytest.mark.parametrize("time", [1e300, "soon"], ids=str)
async def test_a_time_that_is_none_is_a_malformed_response(time):
    async with stub_and_client() as (stub, client):
        stub.script("DescribeStreamSummary", {"StreamDescriptionSummary": {"StreamCreationTimestamp": time}})
        with pytest.raises(TransientError, match="Malformed"):
            await client.retention_ms("orders")


@pytest.mark.parametrize(("status", "expected"), [(400, FatalKinesisError), (500, TransientError)])
@pytest.mark.parametrize("value", [7, ["x"]], ids=str)
@pytest.mark.parametrize("field", ["__type", "message"])
async def test_an_error_with_a_value_of_a_wrong_type_is_classified_by_its_status(field, value, status, expected):
    async with stub_and_client() as (stub, client):
        stub.script("ListShards", raw(json.dumps({"__type": "X", "message": "why", field: value}).encode(), status))
        with pytest.raises(expected):
            await client.list_shards("orders")
