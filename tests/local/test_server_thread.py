"""An endpoint in a thread: its streams are split and merged without a client of Kinesis."""

import pytest

import recordpublisher as rp
from recordpublisher.local import serve_in_thread
from recordpublisher.local.api_errors import ApiError

FIRST, SECOND = "shardId-000000000000", "shardId-000000000001"


@pytest.fixture
def endpoint():
    with serve_in_thread(streams={"orders": 2}) as served:
        yield served


def read(endpoint):
    properties = {**endpoint.properties(), "flink.stream.initpos": "TRIM_HORIZON"}
    return [record.data for record in rp.consume("orders", properties, stop_at_tip=True)]


def test_the_children_of_a_split_are_read_after_their_parent(endpoint):
    orders = endpoint.stream("orders")
    orders.put(b"before", key="a")
    children = orders.split(FIRST), orders.split(SECOND)
    orders.put(b"after", key="a")

    assert read(endpoint) == [b"before", b"after"]
    assert children == (
        ("shardId-000000000002", "shardId-000000000003"),
        ("shardId-000000000004", "shardId-000000000005"),
    )


def test_two_shards_become_one(endpoint):
    orders = endpoint.stream("orders")
    assert orders.merge(FIRST, SECOND) == "shardId-000000000002"
    with pytest.raises(ApiError):
        orders.split(FIRST)


def test_a_key_may_be_a_number(endpoint):
    endpoint.stream("orders").put(b"1", key=5)
    assert read(endpoint) == [b"1"]
