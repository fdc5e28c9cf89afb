"""A Kinesis sink with the in-memory transport: the real client without a socket."""

from recordpublisher.local.clock import ManualClock
from recordpublisher.local.in_memory_transport import MemoryTransport
from recordpublisher.local.streams.account import Account, Delays
from recordpublisher.plugins.sinks.kinesis import KinesisSink
from recordpublisher.publishers.kinesis import KinesisClient
from recordpublisher.publishers.properties.properties import Properties


async def test_encoded_bodies_of_the_client_are_accepted():
    account = Account(ManualClock(), "us-east-1", Delays(), None)
    stream = account.create_stream("out", 1)
    client = KinesisClient(Properties({"aws.region": "us-east-1"}), ["out"], transport=MemoryTransport(account))

    async with KinesisSink("out", {}, port=client) as sink:
        await sink.put(b"1", "k")

    assert len(stream.open_shards[0].log) == 1
