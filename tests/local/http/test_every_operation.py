"""Every operation of the API over HTTP: each answer has the fields that the service's model says, and no others."""

import http.client
from base64 import b64decode
from datetime import UTC, datetime
from typing import Any

import cbor2
import msgspec

from recordpublisher.local import Delays
from recordpublisher.local.event_stream import parse

from servers.sdk.every_operation import converse
from servers.sdk.service_model import served_operations, stored_model

MODEL = stored_model()
SHAPES = MODEL["shapes"]
TYPES = {"integer": int, "long": int, "boolean": bool, "timestamp": (int, float), "string": str, "blob": str}


TIMES = {1: lambda milliseconds, _: datetime.fromtimestamp(milliseconds / 1000, UTC)}


class RawClient:
    """Sends requests of the API without an SDK, and compares the answers with the model."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.called: list[str] = []

    def __call__(self, operation: str, **fields: object) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        headers = {"X-Amz-Target": f"Kinesis_20131202.{operation}", "Content-Type": "application/x-amz-json-1.1"}
        body = msgspec.json.encode(fields)  # bytes become base64
        connection.request("POST", "/", body, headers)
        response = connection.getresponse()
        self.called.append(operation)
        if operation == "SubscribeToShard":
            return {"SubscribeToShardEvent": self._event(response)}
        content = response.read()
        connection.close()
        assert response.status == 200, content
        answer = msgspec.json.decode(content or b"{}")
        output = MODEL["operations"][operation].get("output")
        assert (output is None) == (content == b""), operation
        return checked(answer, output, operation) if output else answer

    @staticmethod
    def _event(response: http.client.HTTPResponse) -> Any:
        def frame() -> bytes:
            length = response.read(4)
            return length + response.read(int.from_bytes(length, "big") - 4)

        frame()  # the initial response
        _, payload = parse(frame()) or ({}, b"{}")
        response.close()
        return checked(msgspec.json.decode(payload), "SubscribeToShardEvent", "SubscribeToShard")


def checked(value: Any, name: str, path: str) -> Any:
    """Return the value with its blobs decoded; fails where it is not what the model says."""
    shape = SHAPES[name]
    match shape["type"]:
        case "structure":
            members = shape["members"]
            assert value.keys() <= members.keys(), f"{path}: not in the model: {value.keys() - members.keys()}"
            assert value.keys() >= set(shape.get("required", ())), f"{path}: missing in {sorted(value)}"
            return {key: checked(each, members[key], f"{path}.{key}") for key, each in value.items()}
        case "list":
            return [checked(each, shape["member"], f"{path}[]") for each in value]
        case "blob":
            return b64decode(value)
    assert isinstance(value, TYPES[shape["type"]]), f"{path}: {value!r}"
    if "enum" in shape:
        assert value in shape["enum"], f"{path}: {value!r}"
    return value


class CborClient:
    """Speaks CBOR, as the SDKs for Java do; blobs are bytes and times are tagged there."""

    def __init__(self, port: int) -> None:
        self._port = port

    def __call__(self, operation: str, **fields: object) -> dict[str, Any]:
        if operation == "SubscribeToShard":
            return RawClient(self._port)(operation, **fields)
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        headers = {"X-Amz-Target": f"Kinesis_20131202.{operation}", "Content-Type": "application/x-amz-cbor-1.1"}
        connection.request("POST", "/", cbor2.dumps(fields), headers)
        response = connection.getresponse()
        content = response.read()
        connection.close()
        assert response.status == 200, content
        output = MODEL["operations"][operation].get("output")
        return with_times_tagged(cbor2.loads(content, semantic_decoders=TIMES), output, operation) if output else {}


def with_times_tagged(value: Any, name: str, path: str) -> Any:
    """Return the value; fails where a time has no tag, or what is no time has one."""
    shape = SHAPES[name]
    if shape["type"] == "structure":
        members = shape["members"]
        return {key: with_times_tagged(each, members[key], f"{path}.{key}") for key, each in value.items()}
    if shape["type"] == "list":
        return [with_times_tagged(each, shape["member"], f"{path}[]") for each in value]
    assert isinstance(value, datetime) == (shape["type"] == "timestamp"), path
    assert isinstance(value, bytes) == (shape["type"] == "blob"), path
    return value


def test_each_is_answered_in_cbor_as_well(serve):
    endpoint, _ = serve(delays=Delays(consumer=0))
    converse(CborClient(endpoint.port))


def test_each_is_answered_as_the_model_says(serve):
    endpoint, _ = serve(delays=Delays(consumer=0))
    client = RawClient(endpoint.port)
    converse(client)
    assert set(client.called) == set(served_operations())
