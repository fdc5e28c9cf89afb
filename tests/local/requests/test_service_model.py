"""The checks of requests are those of the service's model: every operation, every field, every limit."""

import re
from collections.abc import Iterator

import pytest
from msgspec import inspect

from recordpublisher.local.http.api_requests import KNOWN
from recordpublisher.local.operations import table
from recordpublisher.local.requests.consumers import SubscribeToShard

from processes.command_line import ROOT
from servers.sdk.service_model import installed_model, served_operations, stored_model

MODEL = stored_model()
SHAPES = MODEL["shapes"]
INPUTS = {**table.INPUTS, "SubscribeToShard": SubscribeToShard}
NOT_READ = {"StreamId", "StreamCreationTimestamp", "WarmThroughputMiBps"}
"""Fields that requests may have and the endpoint ignores."""
SERVED = served_operations()
KNOWN_DIFFERENCES = {
    "CreateStream.ShardCount: le is 10000": "the documented limit of UpdateShardCount",
    "UpdateShardCount.TargetShardCount: le is 10000": "the same",
    "UpdateMaxRecordSize.StreamARN: required is True": "nothing else names a stream there",
    "PutRecord.Data: max_length is None": "depends on the stream: checked with its MaxRecordSizeInKiB",
    "PutRecords.Records[].Data: max_length is None": "the same",
    **{
        f"{operation}.ConsumerARN: pattern arn:aws.*:kinesis:.*:\\d{{12}}:stream/\\S+": "any other is not found"
        for operation in ("DeregisterStreamConsumer", "DescribeStreamConsumer", "SubscribeToShard")
    },
}
"""Where the endpoint differs from the model, and why."""


def test_every_other_operation_of_the_model_is_answered():
    assert set(KNOWN) == set(SERVED)


@pytest.mark.parametrize("operation", SERVED)
def test_an_input_is_checked_as_the_model_says(operation):
    shape = MODEL["operations"][operation]["input"]
    found = differences(inspect.type_info(INPUTS[operation]), shape, operation)
    assert [line for line in found if line.partition(", in the model")[0] not in KNOWN_DIFFERENCES] == []


def differences(kind: inspect.Type, name: str, path: str) -> Iterator[str]:
    """One line for each constraint that the endpoint has and the model has not, or the other way round."""
    shape, kind = SHAPES[name], without_none(kind)
    if shape["type"] == "structure":
        assert isinstance(kind, inspect.StructType), path
        fields = {field.encode_name: field for field in kind.fields}
        for extra in fields.keys() - shape["members"].keys():
            yield f"{path}.{extra} is not in the model"
        for member, of in shape["members"].items():
            if member in fields:
                yield from field_differences(
                    fields[member], of, f"{path}.{member}", member in shape.get("required", [])
                )
            elif member not in NOT_READ:
                yield f"{path}.{member} is missing"
    elif shape["type"] == "list":
        yield from limits(kind, shape, path)
        yield from differences(kind.item_type, shape["member"], f"{path}[]")
    elif shape["type"] == "map":
        yield from limits(kind, shape, path)
        yield from differences(kind.key_type, shape["key"], f"{path} key")
        yield from differences(kind.value_type, shape["value"], f"{path} value")
    else:
        yield from limits(kind, shape, path)


def field_differences(field: inspect.Field, name: str, path: str, is_required: bool) -> Iterator[str]:
    if field.required != is_required:
        yield f"{path}: required is {field.required}, in the model {is_required}"
    yield from differences(field.type, name, path)


def limits(kind: inspect.Type, shape: dict, path: str) -> Iterator[str]:
    if "enum" in shape:
        found = set(kind.values) if isinstance(kind, inspect.LiteralType) else None
        if found != set(shape["enum"]):
            yield f"{path}: {found}, in the model {shape['enum']}"
        return
    least, most = ("ge", "le") if shape["type"] in ("integer", "long") else ("min_length", "max_length")
    for name, limit in ((least, "min"), (most, "max")):
        found, wanted = getattr(kind, name, None), shape.get(limit)
        if (found or 0 if limit == "min" else found) != (wanted or 0 if limit == "min" else wanted):
            yield f"{path}: {name} is {found}, in the model {wanted}"
    pattern = getattr(kind, "pattern", None)
    found = None if pattern is None else pattern.removeprefix("^(?:").removesuffix(r")\Z")
    if (found or "") != re.sub(r"^\^\((.*)\)\$$", r"\1", shape.get("pattern", "")):
        yield f"{path}: pattern {found}, in the model {shape.get('pattern')}"


def without_none(kind: inspect.Type) -> inspect.Type:
    if isinstance(kind, inspect.UnionType):
        (kind,) = (each for each in kind.types if not isinstance(each, inspect.NoneType))
    return kind


def test_the_page_names_the_model():
    page = (ROOT / "docs/reference/embedded-endpoint.md").read_text()
    assert re.findall(r"botocore (\d+\.\d+\.\d+)", page) == [MODEL["botocore"]]


def test_the_installed_sdk_is_not_newer_in_what_both_know():
    installed = installed_model()
    for operation, shapes in installed["operations"].items():
        assert MODEL["operations"][operation] == shapes
