"""Each limit that the endpoint enforces is the documented one: in the SDK's documentation of the API, or on a page that is named here.

Lengths, ranges and patterns of single fields are compared with the API model in test_requests.py, and the limits that
readers share with the endpoint in publishers/test_service_limits.py.
"""

import inspect
import pkgutil
import re
from functools import cache
from importlib import import_module
from types import ModuleType

import pytest
from botocore.session import get_session

import recordpublisher.local
from recordpublisher.local import Quotas

DOCUMENTED = {
    "operations.queues.MOST_ON_A_PAGE": (100, "ListChannels", "greater than 100, at most 100 results"),
    "operations.streams.MAX_SHARDS_PER_PAGE": (1000, "ListShards", "greater than 1000, at most 1000 results"),
    "operations.streams.MAX_DESCRIBED_SHARDS": (100, "DescribeStream", "greater than 100, at most 100 results"),
    "operations.streams.MAX_STREAMS_PER_PAGE": (100, "ListStreams", "greater than 100, at most 100 results"),
    "operations.streams.MAX_RETENTION_HOURS": (8760, "IncreaseStreamRetentionPeriod", "is 8760 hours (365 days)"),
    "stream.DEFAULT_RETENTION_HOURS": (24, "DecreaseStreamRetentionPeriod", "minimum value of a stream's retention period is 24"),
    "stream.CONSUMER_LIMIT": (20, "RegisterStreamConsumer", "register up to 20 consumers per stream"),
    "stream.MAX_TAGS": (50, "TagResource", "up to 50 tags per resource"),
    "shard.LIFETIME_MS": (300_000, "GetShardIterator", "expires 5 minutes after it is returned"),
    "subscriptions.LIFETIME_MS": (300_000, "SubscribeToShard", "over the HTTP/2 connection for up to 5 minutes"),
    "subscriptions.TAKE_OVER_AFTER_MS": (5_000, "SubscribeToShard", "within 5 seconds of a successful call"),
    "dispatcher.THROTTLE_MS": (1_000, "GetRecords", "calls made within the next 1 second throw"),
}  # fmt: skip
"""Constant, its value, an operation, and words of its documentation in the SDK."""
ON_A_PAGE = {
    "operations.streams.SHARD_LIMIT": "Quotas and limits, July 2025: shown, not enforced",
    "operations.streams.ON_DEMAND_STREAM_LIMIT": "Quotas and limits: 50 on-demand streams; shown, not enforced",
    "requests.MAX_VIOLATIONS": "LocalStack's recordings from AWS: ten violations in one message",
}
OWN = re.compile(
    r"faults\.|(http_requests|server)\.|schedules\.|storage\.|event_stream\.|in_memory_transport\."
    r"|(shard|stream)\.(HASH|TICKS|_COUNTER|HOUR)"
    r"|subscriptions\.(HEARTBEAT_MS|MAX_EVENT_RECORDS|MAX_EVENT_BYTES)"
)
"""Constants that are no limit of the service: units, wire formats, and how the endpoint cuts events, which is not documented."""


def modules() -> list[ModuleType]:
    found = pkgutil.walk_packages(recordpublisher.local.__path__, "recordpublisher.local.")
    return [import_module(each.name) for each in found]


def constants() -> dict[str, float]:
    """Every number in capitals that a module of the endpoint defines."""
    found = {}
    for module in modules():
        for name in re.findall(r"^([A-Z_]+) = ", inspect.getsource(module), re.MULTILINE):
            if isinstance(value := vars(module)[name], int | float):
                found[f"{module.__name__.removeprefix('recordpublisher.local.')}.{name}"] = value
    return found


@cache
def documentation(operation: str) -> str:
    model = get_session().get_service_model("kinesis").operation_model(operation)
    members = [member.documentation for member in model.input_shape.members.values()]
    texts = [model.documentation, *members, model.output_shape.documentation if model.output_shape else ""]
    return re.sub(r"\s+", " ", re.sub("<[^>]+>", "", " ".join(texts)))


def test_every_limit_of_the_endpoint_has_a_source():
    unknown = {name for name in constants() if not OWN.match(name)} - DOCUMENTED.keys() - ON_A_PAGE.keys()
    assert unknown == set()


@pytest.mark.parametrize("name", DOCUMENTED)
def test_a_limit_is_what_the_api_reference_says(name):
    value, operation, words = DOCUMENTED[name]
    assert constants()[name] == value
    assert words in documentation(operation)


def test_the_rates_are_the_documented_ones():
    service = Quotas.service()
    assert (service.reads, service.read_bytes, service.write_records, service.write_bytes, service.subscribes) == (
        5,
        2 * 2**20,
        1_000,
        2**20,
        1,
    )


@pytest.mark.parametrize(
    "arn",
    [
        "arn:aws:kinesis:us-east-1:111111111111:stream/orders",
        "arn:aws:kinesis:eu-west-1:000000000000:stream/orders",
        "arn:aws-cn:kinesis:us-east-1:000000000000:stream/orders",
    ],
)
@pytest.mark.parametrize("operation", ["DescribeStreamSummary", "GetResourcePolicy", "RegisterStreamConsumer"])
def test_an_arn_of_another_account_region_or_partition_is_not_found(call, arn, operation):
    call("CreateStream", StreamName="orders")
    fields = {"ResourceARN": arn} if operation == "GetResourcePolicy" else {"StreamARN": arn}
    name = {"ConsumerName": "c"} if operation == "RegisterStreamConsumer" else {}
    with pytest.raises(Exception, match="ResourceNotFoundException"):
        call(operation, **fields, **name)
