"""Each limit of the service is the documented one: the SDK's own documentation of the API, or a page that is quoted here."""

import re
from functools import cache

import pytest
from botocore.session import get_session

from recordpublisher.publishers import service_limits as limits

DOCUMENTED = {
    "GET_RECORDS_CALLS_PER_SECOND": (5, "GetRecords", "using the 5 TPS limit"),
    "GET_RECORDS_RECORDS": (10_000, "GetRecords", "maximum number of records that can be returned per call is 10,000"),
    "GET_RECORDS_BYTES": (10 * 2**20, "GetRecords", "maximum size of data that GetRecords can return is 10 MiB"),
    "READ_BYTES_PER_SECOND": (2 * 2**20, "GetRecords", "Each shard can read up to 2 MiB per second"),
    "REFUSED_SECONDS_AFTER_LARGEST_RESPONSE": (5, "GetRecords", "calls made within the next 5 seconds throw"),
    "REFUSED_SECONDS": (1, "GetRecords", "calls made within the next 1 second throw"),
    "ITERATOR_SECONDS": (5 * 60, "GetShardIterator", "expires 5 minutes after it is returned"),
    "SUBSCRIPTION_SECONDS": (5 * 60, "SubscribeToShard", "over the HTTP/2 connection for up to 5 minutes"),
    "SECONDS_BETWEEN_SUBSCRIPTIONS": (5, "SubscribeToShard", "within 5 seconds of a successful call"),
    "SECONDS_BETWEEN_SUBSCRIBE_CALLS": (
        1,
        "SubscribeToShard",
        "one call to SubscribeToShard per second per registered",
    ),
    "NEXT_TOKEN_SECONDS": (300, "ListShards", "Tokens expire after 300 seconds"),
    "WRITE_RECORDS_PER_SECOND": (1_000, "PutRecords", "writes up to 1,000 records per second"),
    "WRITE_BYTES_PER_SECOND": (2**20, "PutRecords", "maximum data write total of 1 MB per second"),
    "PUT_RECORDS_RECORDS": (500, "PutRecords", "can support up to 500 records"),
    "PUT_RECORDS_BYTES": (10 * 2**20, "PutRecords", "up to a limit of 10 MiB for the entire request"),
    "DEFAULT_RECORD_BYTES": (2**20, "GetRecords", "Each data record can be up to 1 MiB in size by default"),
    "LARGEST_RECORD_BYTES": (10 * 2**20, "GetRecords", "supports large records up to 10 MiB in size"),
    "PARTITION_KEY_CHARACTERS": (256, "PutRecord", "maximum length limit of 256 characters"),
}
"""Value, operation, and words of the operation's documentation in the SDK, or of one of its parameters'."""


@cache
def documentation(operation: str) -> str:
    model = get_session().get_service_model("kinesis").operation_model(operation)
    shapes = [model.input_shape, *([model.output_shape] if model.output_shape else [])]
    members = [member.documentation for shape in shapes for member in shape.members.values()]
    return re.sub(r"\s+", " ", re.sub("<[^>]+>", "", " ".join([model.documentation, *members])))


def test_every_limit_has_a_source():
    assert {name for name in vars(limits) if name.isupper()} == set(DOCUMENTED)


@pytest.mark.parametrize("name", DOCUMENTED)
def test_a_limit_is_what_the_api_reference_says(name):
    value, operation, words = DOCUMENTED[name]

    assert getattr(limits, name) == value
    assert words in documentation(operation)
