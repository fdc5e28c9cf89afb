"""Requests are checked as in the service's model, and their errors have the service's words."""

import re
from collections.abc import Iterator

import msgspec
import pytest
from msgspec import inspect

from recordpublisher.local import dispatcher as table
from recordpublisher.local.dispatcher import OPERATIONS
from recordpublisher.local.errors import ApiError
from recordpublisher.local.http_requests import KNOWN_OPERATIONS
from recordpublisher.local.requests import SubscribeToShard

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

STREAM = {"StreamName": "orders"}
UNDER = "orders under account 000000000000"
ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"
FIRST = {**STREAM, "ShardId": "shardId-000000000000"}
EITHER = (
    "Must either specify (1) AT_SEQUENCE_NUMBER or AFTER_SEQUENCE_NUMBER and StartingSequenceNumber or "
    "(2) TRIM_HORIZON or LATEST and no StartingSequenceNumber."
)
RETENTION = (
    "Requested retention period ({} hours) for stream orders can not be {} than existing retention period ({} hours). "
)

LONG = "a" * 129
NAME_PATTERN = "Member must satisfy regular expression pattern: [a-zA-Z0-9_.-]+"
TOO_SHORT = "Member must have length greater than or equal to 1"
TYPES = "[AFTER_SEQUENCE_NUMBER, LATEST, AT_TIMESTAMP, AT_SEQUENCE_NUMBER, TRIM_HORIZON]"


def test_every_other_operation_of_the_model_is_answered():
    assert set(KNOWN_OPERATIONS) == set(SERVED)


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


@pytest.mark.parametrize(
    ("operation", "fields", "expected"),
    [
        (
            "IncreaseStreamRetentionPeriod",
            {"RetentionPeriodHours": 20},
            "Minimum allowed retention period is 24 hours. Requested retention period (20 hours) is too short.",
        ),
        (
            "DecreaseStreamRetentionPeriod",
            {"RetentionPeriodHours": 9999},
            "Maximum allowed retention period is 8760 hours. Requested retention period (9999 hours) is too long.",
        ),
        (
            "IncreaseStreamRetentionPeriod",
            {"RetentionPeriodHours": 25},
            RETENTION.format(25, "shorter", 30) + "Use DecreaseRetentionPeriod API.",
        ),
        (
            "DecreaseStreamRetentionPeriod",
            {"RetentionPeriodHours": 40},
            RETENTION.format(40, "longer", 30) + "Use IncreaseRetentionPeriod API.",
        ),
        (
            "SplitShard",
            {"ShardToSplit": "unknown", "NewStartingHashKey": "1"},
            f"Could not find shard unknown in stream {UNDER}.",
        ),
        (
            "MergeShards",
            {"ShardToMerge": "shardId-000000000000", "AdjacentShardToMerge": "unknown"},
            f"Could not find shard unknown in stream {UNDER}.",
        ),
        (
            "GetShardIterator",
            {**FIRST, "ShardIteratorType": "LATEST", "StartingSequenceNumber": "5"},
            f"{EITHER} Request specified LATEST and also a StartingSequenceNumber.",
        ),
        (
            "GetShardIterator",
            {**FIRST, "ShardIteratorType": "AT_SEQUENCE_NUMBER"},
            f"{EITHER} Request specified AT_SEQUENCE_NUMBER and no StartingSequenceNumber.",
        ),
        (
            "GetShardIterator",
            {**FIRST, "ShardIteratorType": "AT_TIMESTAMP"},
            "Must specify timestampInMillis parameter for iterator of type AT_TIMESTAMP. "
            "Current request has no timestamp parameter.",
        ),
        (
            "PutRecord",
            {"Data": "eA=="},
            "1 validation error detected: Value null at 'partitionKey' failed to satisfy constraint: Member must not be null",
        ),
        (
            "PutRecords",
            {"Records": [{"Data": "eA==", "PartitionKey": "k"}, {"Data": "AAAA" * 349526, "PartitionKey": "k"}]},
            "1 validation error detected: Value 'java.nio.HeapByteBuffer[pos=0 lim=1048578 cap=1048578]' at "
            "'records.2.member.data' failed to satisfy constraint: Member must have length less than or equal to 1048576",
        ),
        (
            "DeleteResourcePolicy",
            {"StreamName": None, "ResourceARN": ARN},
            f"No resource policy found for resource ARN {ARN}.",
        ),
        (
            "DescribeStreamConsumer",
            {"StreamName": None, "ConsumerARN": f"{ARN}/consumer/c:1"},
            f"Consumer {ARN}/consumer/c:1, account 000000000000 not found.",
        ),
        (
            "DescribeStreamConsumer",
            {"StreamName": None, "ConsumerARN": ARN},
            f"Consumer {ARN}, account 000000000000 not found.",
        ),
    ],
)
def test_the_text_is_the_services(call, operation, fields, expected):
    call("CreateStream", **STREAM, ShardCount=1)
    call("IncreaseStreamRetentionPeriod", **STREAM, RetentionPeriodHours=30)
    with pytest.raises(ApiError) as raised:
        call(operation, **{**STREAM, **fields})
    assert raised.value.message == expected


def test_a_stream_on_demand_is_not_resharded(call):
    call("CreateStream", **STREAM, StreamModeDetails={"StreamMode": "ON_DEMAND"})
    with pytest.raises(ApiError) as raised:
        call("UpdateShardCount", **STREAM, TargetShardCount=8, ScalingType="UNIFORM_SCALING")
    expected = f"ValidationException: Request is invalid. Stream {UNDER} is in On-Demand mode."
    assert str(raised.value) == expected


def test_a_stream_that_changes_is_in_use(call, account, clock):
    call("CreateStream", **STREAM, ShardCount=1)
    account.find("orders").set_busy("UPDATING", 1000)
    with pytest.raises(ApiError) as raised:
        call("SplitShard", **STREAM, ShardToSplit="0", NewStartingHashKey="1000")
    assert str(raised.value) == f"ResourceInUseException: Stream {UNDER} not ACTIVE, instead in state UPDATING"


def test_an_expired_iterator_shows_its_times(call, clock):
    call("CreateStream", **STREAM, ShardCount=1)
    iterator = call("GetShardIterator", **FIRST, ShardIteratorType="LATEST")["ShardIterator"]
    clock.advance(300_000)
    with pytest.raises(ApiError) as raised:
        call("GetRecords", ShardIterator=iterator)
    assert raised.value.message == (
        "Iterator expired. The iterator was created at time Tue Nov 14 22:13:20 UTC 2023 while right now it is "
        "Tue Nov 14 22:18:20 UTC 2023 which is further in the future than the tolerated delay of 300000 milliseconds."
    )


def refused(account, operation, fields):
    with pytest.raises(ApiError) as raised:
        OPERATIONS[operation](account, msgspec.json.encode(fields))
    return raised.value


def value(shown, path, constraint):
    return f"Value {shown} at '{path}' failed to satisfy constraint: {constraint}"


@pytest.mark.parametrize(
    ("operation", "fields", "expected"),
    [
        ("CreateStream", {}, [value("null", "streamName", "Member must not be null")]),
        (
            "CreateStream",
            {"StreamName": "", "ShardCount": 0},
            [
                value("''", "streamName", NAME_PATTERN),
                value("''", "streamName", TOO_SHORT),
                value("'0'", "shardCount", "Member must have value greater than or equal to 1"),
            ],
        ),
        (
            "DeleteStream",
            {"StreamName": LONG},
            [value(f"'{LONG}'", "streamName", "Member must have length less than or equal to 128")],
        ),
        ("DeleteStream", {"StreamName": "orders\n"}, [value("'orders\n'", "streamName", NAME_PATTERN)]),
        (
            "SplitShard",
            {"StreamName": "s", "ShardToSplit": "0", "NewStartingHashKey": "sth"},
            [
                value(
                    "'sth'", "newStartingHashKey", r"Member must satisfy regular expression pattern: 0|([1-9]\d{0,38})"
                )
            ],
        ),
        (
            "GetShardIterator",
            {"StreamName": "s", "ShardId": "0", "ShardIteratorType": "SOON"},
            [value("'SOON'", "shardIteratorType", f"Member must satisfy enum value set: {TYPES}")],
        ),
        (
            "PutRecords",
            {"StreamName": "s", "Records": [{"Data": "", "PartitionKey": "k"}, {"PartitionKey": ""}]},
            [
                value("null", "records.2.member.data", "Member must not be null"),
                value("''", "records.2.member.partitionKey", TOO_SHORT),
            ],
        ),
        (
            "RemoveTagsFromStream",
            {"StreamName": "s", "TagKeys": ["a", LONG]},
            [
                value(
                    f"'[a, {LONG}]'",
                    "tagKeys",
                    f"Member must satisfy constraint: [Member must have length less than or equal to 128, {TOO_SHORT}]",
                )
            ],
        ),
        (
            "AddTagsToStream",
            {"StreamName": "s", "Tags": {"a": "b" * 257}},
            [
                value(
                    f"'{{a={'b' * 257}}}'",
                    "tags",
                    "Map value must satisfy constraint: [Member must have length less than or equal to 256, "
                    "Member must have length greater than or equal to 0]",
                )
            ],
        ),
        ("RemoveTagsFromStream", {"StreamName": "s", "TagKeys": []}, [value("'[]'", "tagKeys", TOO_SHORT)]),
    ],
)
def test_every_violation_is_named_as_the_service_does(account, operation, fields, expected):
    error = refused(account, operation, fields)
    assert error.code == "ValidationException"
    plural = "s" if len(expected) > 1 else ""
    assert error.message == f"{len(expected)} validation error{plural} detected: {'; '.join(expected)}"


def test_records_are_shown_by_a_hash_and_not_with_their_data(account):
    error = refused(
        account, "PutRecords", {"StreamName": "s", "Records": [{"Data": "eA==", "PartitionKey": "k"}] * 501}
    )
    entry = r"com\.amazonaws\.kinesis\.v20131202\.PutRecordsRequestEntry@[0-9a-f]{1,8}"
    assert re.fullmatch(
        rf"1 validation error detected: Value '\[{entry}(, {entry}){{500}}\]' at 'records' "
        "failed to satisfy constraint: Member must have length less than or equal to 500",
        error.message,
    )


def test_at_most_ten_violations_are_named(account):
    error = refused(account, "PutRecords", {"StreamName": "s", "Records": [{"Data": "", "PartitionKey": ""}] * 11})
    assert error.message.startswith("10 validation errors detected: ")
    assert "records.10.member" in error.message
    assert "records.11.member" not in error.message


@pytest.mark.parametrize("fields", [{"StreamName": "", "ShardCount": "1"}, {"StreamName": "", "Tags": {"a": 1}}])
def test_a_wrong_type_comes_before_violated_constraints(account, fields):
    assert refused(account, "CreateStream", fields).code == "SerializationException"


def test_null_is_no_violation_that_is_known(account):
    error = refused(account, "CreateStream", {"StreamName": "orders", "ShardCount": None})
    assert error.message.startswith("1 validation error detected: ")
