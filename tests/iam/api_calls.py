"""Which action a request to AWS needs, on which resources: by its headers, path and body."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

ACCOUNT = "123456789012"
_SERVICES = {
    "Kinesis_20131202": "kinesis",
    "DynamoDB_20120810": "dynamodb",
    "DynamoDBStreams_20120810": "dynamodbstreams",
    "AWSGlue": "glue",
}
_BUCKET_ACTIONS = {"GET": "ListBucket", "POST": "DeleteObject"}
_OBJECT_ACTIONS = {"GET": "GetObject", "HEAD": "GetObject", "PUT": "PutObject", "DELETE": "DeleteObject"}


@dataclass(frozen=True)
class Call:
    """A call: `service` that answers it, the action and its resources; empty: the stream of the last shard iterator."""

    service: str
    action: str
    resources: tuple[str, ...]
    is_xml: bool = False


def call_of(method: str, path: str, headers: Mapping[str, str], body: bytes) -> Call:
    """The call that a request makes."""
    target = headers.get("X-Amz-Target")
    if target is None:
        return _sts_call(body) if b"Action=" in body else _s3_call(method, path, body)
    prefix, _, operation = target.partition(".")
    service, fields = _SERVICES[prefix], json.loads(body or b"{}")
    action = f"{service.removesuffix('streams')}:{operation}"
    return Call(service, action, tuple(map(_with_account, _RESOURCES[service](operation, fields))))


def _kinesis_resources(operation: str, fields: Mapping[str, Any]) -> tuple[str, ...]:
    if operation in ("ListStreams", "ListQueues"):
        return ("*",)
    if operation == "CreateQueue":  # its ARN has an id that the service makes
        return (f"arn:aws:kinesis:us-east-1:{ACCOUNT}:queue/new", fields["StreamConfigurationList"][0]["StreamARN"])
    if "QueueARN" in fields:
        return (fields["QueueARN"],)
    if operation == "SubscribeToShard":
        return (fields["ConsumerARN"],)
    if "ConsumerARN" in fields:
        return fields["ConsumerARN"].partition("/consumer/")[0], fields["ConsumerARN"]
    named = fields.get("StreamName")
    stream = fields.get("StreamARN") or (named and f"arn:aws:kinesis:us-east-1:{ACCOUNT}:stream/{named}")
    if stream is None:
        return ()
    return (stream, f"{stream}/consumer/{fields['ConsumerName']}:1") if "ConsumerName" in fields else (stream,)


def _dynamodb_resources(operation: str, fields: Mapping[str, Any]) -> tuple[str, ...]:
    return (f"arn:aws:dynamodb:us-east-1:{ACCOUNT}:table/{fields['TableName']}",)


def _dynamodb_streams_resources(operation: str, fields: Mapping[str, Any]) -> tuple[str, ...]:
    if operation == "ListStreams":
        return (f"{_dynamodb_resources(operation, fields)[0]}/stream/label",)
    return (fields["StreamArn"],) if "StreamArn" in fields else ()


_RESOURCES = {
    "kinesis": _kinesis_resources,
    "dynamodb": _dynamodb_resources,
    "dynamodbstreams": _dynamodb_streams_resources,
    "glue": lambda operation, fields: ("*",),
}


def _s3_call(method: str, path: str, body: bytes) -> Call:
    bucket, _, name = unquote(urlsplit(path).path).strip("/").partition("/")
    action = (_OBJECT_ACTIONS if name else _BUCKET_ACTIONS)[method]
    deleted = re.findall("<Key>(.*?)</Key>", body.decode()) if action == "DeleteObject" and not name else [name]
    return Call(
        "s3", f"s3:{action}", tuple(f"arn:aws:s3:::{bucket}/{each}".rstrip("/") for each in deleted), is_xml=True
    )


def _sts_call(body: bytes) -> Call:
    fields = parse_qs(body.decode())
    return Call("sts", f"sts:{fields['Action'][0]}", (fields["RoleArn"][0],), is_xml=True)


def _with_account(arn: str) -> str:
    """Every account is that of the page."""
    return re.sub(r":\d{12}:", f":{ACCOUNT}:", arn)
