"""How inputs and outputs are decoded and encoded."""

import msgspec
import pytest

from recordpublisher.local.api_errors import ApiError
from recordpublisher.local.operations.table import OPERATIONS


@pytest.mark.parametrize(
    ("operation", "fields"),
    [
        ("CreateStream", {"StreamName": 23}),
        ("CreateStream", {"ShardCount": "23"}),
        ("PutRecord", {"Data": True}),
        ("PutRecord", {"Data": "23456"}),
        ("PutRecord", {"SequenceNumberForOrdering": {}}),
        ("PutRecords", {"Records": {}}),
        ("PutRecords", {"Records": ["a"]}),
        ("GetShardIterator", {"ShardIteratorType": []}),
        ("ListShards", {"StreamCreationTimestamp": "23"}),
    ],
)
def test_a_field_of_the_wrong_type_is_a_serialization_exception(account, operation, fields):
    with pytest.raises(ApiError, match=r"^SerializationException"):
        OPERATIONS[operation](account, msgspec.json.encode(fields))


@pytest.mark.parametrize(
    ("operation", "fields"),
    [
        ("CreateStream", {"StreamName": None}),
        ("CreateStream", {"StreamName": "a", "ShardCount": 0}),
        ("GetShardIterator", {"StreamName": "a", "ShardId": "b", "ShardIteratorType": "SOON"}),
    ],
)
def test_a_missing_or_invalid_field_is_a_validation_exception(account, operation, fields):
    with pytest.raises(ApiError, match=r"^ValidationException"):
        OPERATIONS[operation](account, msgspec.json.encode(fields))


def test_an_operation_without_output_answers_with_an_empty_body(account):
    assert OPERATIONS["CreateStream"](account, b'{"StreamName":"orders"}') == b""


def test_json_that_is_nested_too_deeply_is_a_serialization_exception(account):
    with pytest.raises(ApiError, match=r"^SerializationException"):
        OPERATIONS["CreateStream"](account, b'{"Tags":' + b'{"a":' * 200_000)
