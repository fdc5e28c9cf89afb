"""ManagementClient against the embedded endpoint."""

import pytest

from recordpublisher.local import Account, Delays, LocalKinesis, MemoryTransport
from recordpublisher.publishers.errors import RecordPublisherError, StreamNotFoundError
from recordpublisher.publishers.kinesis.management import ListedStream, ManagementClient
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.reading_properties import DESCRIBE_STREAM_RETRIES
from recordpublisher.testing import VirtualClock, run_virtual


@pytest.fixture
async def endpoint():
    async with LocalKinesis(streams={"orders": 2}) as served:
        yield served


@pytest.fixture
async def client(endpoint):
    async with ManagementClient(Properties(endpoint.properties())) as opened:
        yield opened


async def test_streams_are_listed_over_all_pages():
    names = [f"s{number:03}" for number in range(150)]
    async with LocalKinesis(streams=dict.fromkeys(names, 1)) as served:
        async with ManagementClient(Properties(served.properties())) as client:
            listed = await client.listed_streams()

        assert [each.name for each in listed] == names
        assert (listed[0].status, listed[0].mode) == ("ACTIVE", "PROVISIONED")
        assert listed[0].created.timestamp() == pytest.approx(served.stream("s000").created_ms / 1000)


@pytest.mark.parametrize("arn", [True, 5, [], {}])
def test_a_description_whose_arn_is_no_text_is_malformed(arn):
    described = {"StreamName": "orders", "StreamARN": arn, "StreamStatus": "ACTIVE"}
    with pytest.raises(TypeError, match="is not text"):
        ListedStream.parse(
            {**described, "StreamModeDetails": {"StreamMode": "ON_DEMAND"}, "StreamCreationTimestamp": 0}
        )


async def test_a_description_has_settings_consumers_and_shards(endpoint, client):
    stream = endpoint.stream("orders")
    stream.retention_hours, stream.max_record_bytes = 48, 2 << 20
    stream.mode, stream.distribution = "ON_DEMAND", "AUTO"
    await client.register_consumer(stream.arn, "billing")

    described = await client.describe("orders")

    assert (described.stream.arn, described.stream.mode) == (stream.arn, "ON_DEMAND")
    assert (described.retention_hours, described.max_record_bytes) == (48, 2 << 20)
    assert (described.distributes_by_key, described.encryption_key) == (False, None)
    assert [each.name for each in described.consumers] == ["billing"]
    assert (described.open_shards, len(described.shards)) == (2, 2)


class TwoPages:
    """A transport that lists one consumer on each of two pages."""

    async def call(self, api, **parameters):
        number = 1 if "NextToken" in parameters else 0
        consumer = {"ConsumerName": f"c{number}", "ConsumerARN": f"arn:{number}", "ConsumerStatus": "ACTIVE"}
        return {"Consumers": [consumer], "NextToken": None if number else "second"}


async def test_consumers_are_listed_over_all_pages():
    listed = await ManagementClient(Properties(), transport=TwoPages()).list_consumers("arn")

    assert [each.name for each in listed] == ["c0", "c1"]


async def test_the_error_for_an_unknown_stream_names_the_existing_ones(client):
    with pytest.raises(StreamNotFoundError, match="existing streams: orders"):
        await client.describe("order")


def test_a_new_stream_is_waited_for():
    async def create():
        account = Account(VirtualClock(), "us-east-1", Delays(create_stream=20_000), None)
        client = ManagementClient(Properties(), transport=MemoryTransport(account))
        await client.create_stream("events", 3)
        assert account.find("events").status == "CREATING"
        await client.wait_until_active("events", DESCRIBE_STREAM_RETRIES.policy(Properties()), VirtualClock())
        assert account.find("events").status == "ACTIVE"
        assert len(account.find("events").open_shards) == 3

    run_virtual(create())


def test_a_stream_that_does_not_become_active_is_an_error():
    async def create():
        account = Account(VirtualClock(), "us-east-1", Delays(create_stream=3_600_000), None)
        client = ManagementClient(Properties(), transport=MemoryTransport(account))
        await client.create_stream("events", None)
        await client.wait_until_active("events", DESCRIBE_STREAM_RETRIES.policy(Properties()), VirtualClock())

    with pytest.raises(RecordPublisherError, match="stream events is CREATING, not ACTIVE, after 600 s"):
        run_virtual(create())
