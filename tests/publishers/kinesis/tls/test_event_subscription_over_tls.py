"""The memory of subscriptions over TLS (P6)."""

import asyncio

from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.shards import Shard

from servers.certificates import self_signed
from servers.event_frames import an_event, initial_response, wire_record
from servers.scripted_kinesis import stub_and_client

SHARD = Shard("orders", "shardId-000000000000")
CONSUMER = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders/consumer/me:1"
START = StartingPosition.trim_horizon()


async def test_p6_little_is_buffered_over_tls_beyond_the_requested_event(tmp_path, monkeypatch):
    certificate = self_signed(tmp_path)
    monkeypatch.setenv("AWS_CA_BUNDLE", certificate[0])
    large = [an_event(wire_record(bytes(700_000), str(n))) for n in range(4)]
    has_begun = asyncio.Event()

    async def begun(request):
        await has_begun.wait()

    async with stub_and_client(certificate=certificate) as (stub, client):
        stub.script("SubscribeToShard", [initial_response(), an_event(continuation="0"), begun, *large])
        events = await client.subscribe_to_shard(CONSUMER, SHARD, START)
        await anext(events)
        has_begun.set()
        await asyncio.sleep(0.2)
        buffered = events._transport.get_read_buffer_size()
        assert len([response async for response in events]) == 4
    assert buffered <= 128 * 1024


async def read_all(events):
    return [response async for response in events]


async def test_p6_subscriptions_over_tls_share_the_buffer_for_encrypted_bytes(tmp_path, monkeypatch):
    certificate = self_signed(tmp_path)
    monkeypatch.setenv("AWS_CA_BUNDLE", certificate[0])
    sizes = [200_000, 300_000, 400_000]  # none has arrived whole before it is requested
    async with stub_and_client(certificate=certificate) as (stub, client):
        for size in sizes:
            records = [wire_record(f"{size} {n} ".encode() * (size // 10), str(n)) for n in range(5)]
            stub.script("SubscribeToShard", [initial_response(), *map(an_event, records)])
        every = [await client.subscribe_to_shard(CONSUMER, SHARD, START) for _ in sizes]
        buffers = {id(events._transport._ssl_protocol._ssl_buffer) for events in every}
        results = await asyncio.gather(*map(read_all, every))
    assert len(buffers) == 1
    for size, responses in zip(sizes, results, strict=True):
        assert [response.records[0].data for response in responses] == [
            f"{size} {n} ".encode() * (size // 10) for n in range(5)
        ]
