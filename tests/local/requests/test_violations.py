"""Errors of validation have the service's wording: as kinesalite's tests and LocalStack's recordings have it from AWS."""

import re

import msgspec
import pytest

from recordpublisher.local.api_errors import ApiError
from recordpublisher.local.operations.table import OPERATIONS

LONG = "a" * 129
NAME_PATTERN = "Member must satisfy regular expression pattern: [a-zA-Z0-9_.-]+"
TOO_SHORT = "Member must have length greater than or equal to 1"
TYPES = "[AFTER_SEQUENCE_NUMBER, LATEST, AT_TIMESTAMP, AT_SEQUENCE_NUMBER, TRIM_HORIZON]"


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
