"""The transport against a server that says exactly what a test wants."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from recordpublisher.publishers.errors import ConfigurationError, TransientError
from recordpublisher.publishers.kinesis import KinesisClient
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shards import Shard

from servers.event_frames import event, initial_response, wire_record
from servers.fast_time import run_fast
from servers.http2_server import http2_server
from servers.scripted_kinesis import stub_and_client

CONSUMER = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders/consumer/me:1"
ACCESS = {
    "aws.credentials.provider.basic.accesskeyid": "x",
    "aws.credentials.provider.basic.secretkey": "y",
    "aws.http.protocol.version": "HTTP2",
}


def an_event(*records, continuation="5"):
    return event(Records=list(records), ContinuationSequenceNumber=continuation, MillisBehindLatest=0)


@asynccontextmanager
async def served(**how):
    async with (
        http2_server(**how) as server,
        KinesisClient(Properties({**ACCESS, "aws.endpoint": server.url})) as client,
    ):
        yield server, client


async def subscribe(client, number=0):
    shard = Shard("orders", f"shardId-{number:012d}")
    return await client.subscribe_to_shard(CONSUMER, shard, StartingPosition.trim_horizon())


async def settled(condition):
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 # what is watched has no event
            await asyncio.sleep(0.01)


async def test_events_of_two_subscriptions_share_a_connection():
    async with served() as (server, client):
        subscriptions = [await subscribe(client, number) for number in range(2)]
        (talk,) = server.talks
        for stream_id, sequence in zip(talk.streams, "45", strict=True):
            talk.send(stream_id, initial_response() + an_event(wire_record(b"data", sequence)), end=True)
        for subscription, sequence in zip(subscriptions, "45", strict=True):
            (answer,) = [answer async for answer in subscription]
            assert answer.records[0].sequence_number == sequence


async def test_f1_a_subscription_beyond_the_servers_limit_gets_a_further_connection():
    async with served(streams=2) as (server, client):
        await asyncio.gather(*(subscribe(client, number) for number in range(5)))
        assert [len(talk.streams) for talk in server.talks] == [2, 2, 1]


async def test_a_place_that_was_given_back_is_used_again():
    async with served(streams=1) as (server, client):
        first = await subscribe(client)
        await first.close()
        await subscribe(client)
        (talk,) = server.talks
        await settled(lambda: talk.resets == [(talk.streams[0], 8)])
        assert len(talk.streams) == 2


async def test_a_server_that_allows_no_streams_is_not_asked_for_ever():
    async with served(streams=0) as (_, client):
        with pytest.raises(TransientError, match="allows no streams"):
            await subscribe(client)


async def test_f1_an_unread_subscription_holds_one_window_and_stalls_nobody():
    async with served(flood=True) as (server, client):
        unread, read = (await subscribe(client), await subscribe(client, 1))
        (talk,) = server.talks
        held, busy = talk.streams
        for stream_id in talk.streams:
            talk.pour(stream_id)
        talk.flush()
        for _ in range(200):
            await read._response.readany()
        assert server.sent[held] == 128 * 1024
        assert server.sent[busy] > 10 * 128 * 1024
        assert unread._response.unacknowledged_bytes == 128 * 1024
        await unread._response.readany()
        await unread._response.readany()  # what was read is replaced, and the stream goes on
        assert server.sent[held] > 128 * 1024


async def test_what_a_closed_subscription_left_unread_is_given_back_to_its_connection():
    async with served(flood=True) as (server, client):
        subscription = await subscribe(client)
        (talk,) = server.talks
        connection = subscription._response._flow_control
        talk.pour(talk.streams[0])
        talk.flush()
        await settled(lambda: subscription._response.unacknowledged_bytes == 128 * 1024)
        window = connection._h2._inbound_flow_control_window_manager
        assert window._bytes_processed == 0
        await subscription.close()
        assert (window._bytes_processed, subscription._response.unacknowledged_bytes) == (128 * 1024, 0)


@pytest.mark.parametrize("how", ["reset", "goaway", "drop"])
async def test_a_lost_stream_is_transient_after_what_came_before_it(how):
    async with served() as (server, client):
        subscription = await subscribe(client)
        (talk,) = server.talks
        talk.send(talk.streams[0], initial_response() + an_event(wire_record(b"data", "4")))
        assert (await anext(subscription)).records[0].data == b"data"
        if how == "reset":
            talk.h2.reset_stream(talk.streams[0], error_code=2)
        elif how == "goaway":
            talk.h2.close_connection()
        else:
            talk.transport.abort()
        talk.flush()
        with pytest.raises(TransientError, match="StreamLostError"):
            await anext(subscription)
        await subscribe(client, 1)
        assert len(server.talks) == (1 if how == "reset" else 2)


async def test_a_body_that_ends_inside_a_frame_is_transient():
    async with served() as (server, client):
        subscription = await subscribe(client)
        (talk,) = server.talks
        talk.send(talk.streams[0], an_event(wire_record(b"data", "4"))[:-7], end=True)
        with pytest.raises(TransientError, match="inside a frame"):
            await anext(subscription)


async def test_frames_without_data_are_no_end_and_their_padding_is_given_back():
    async with served() as (server, client):
        subscription = await subscribe(client)
        (talk,) = server.talks
        reading = asyncio.create_task(anext(subscription))
        for _ in range(4):
            talk.send(talk.streams[0], b"")
            talk.h2.send_data(talk.streams[0], b"", pad_length=255)
            talk.flush()
        window = subscription._response._flow_control._h2._inbound_flow_control_window_manager
        await settled(lambda: window._bytes_processed == 4 * 256)
        talk.send(talk.streams[0], initial_response() + an_event(wire_record(b"data", "4")))
        assert (await reading).records[0].data == b"data"


async def test_a_cancelled_read_loses_nothing():
    async with served() as (server, client):
        subscription = await subscribe(client)
        (talk,) = server.talks
        whole = initial_response() + an_event(wire_record(b"data", "4"))
        talk.send(talk.streams[0], whole[:-9])
        reading = asyncio.create_task(anext(subscription))
        await settled(lambda: subscription._frames._buffered_bytes and not subscription._response._chunks)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        talk.send(talk.streams[0], whole[-9:])
        assert (await anext(subscription)).records[0].data == b"data"


async def test_a_cancelled_subscribe_gives_its_stream_back():
    async with served() as (server, client):
        await subscribe(client)
        (talk,) = server.talks
        talk.silent = True
        opening = asyncio.create_task(subscribe(client, 1))
        connection = next(iter(client._transport._http2._pools.values()))._connections[0]
        await settled(lambda: len(connection._streams) == 2)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert len(connection._streams) == 1


def test_a_connection_that_does_not_answer_gets_no_new_subscription():
    async def main():
        async with served() as (server, client):
            await subscribe(client)
            server.talks[0].silent = True
            await asyncio.sleep(6)
            await subscribe(client, 1)
            assert [len(talk.streams) for talk in server.talks] == [1, 1]

    run_fast(main())


def test_a_silent_connection_that_answers_is_used_again():
    async def main():
        async with served() as (server, client):
            await subscribe(client)
            await asyncio.sleep(6)
            await subscribe(client, 1)
            assert [len(talk.streams) for talk in server.talks] == [2]

    run_fast(main())


async def test_close_ends_open_subscriptions_and_closes_every_connection():
    async with served(streams=1) as (server, client):
        subscriptions = [await subscribe(client, number) for number in range(2)]
        reading = asyncio.create_task(anext(subscriptions[0]))
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(TransientError, match="closed"):
            await reading
        await settled(lambda: all(talk.transport.is_closing() for talk in server.talks))


async def test_an_endpoint_that_speaks_http1_alone_is_named_as_such():
    async with (
        stub_and_client() as (stub, _),
        KinesisClient(Properties({**ACCESS, "aws.endpoint": stub.url})) as client,
    ):
        with pytest.raises(ConfigurationError, match=r"aws.http.protocol.version.*responds in HTTP/1.1"):
            await subscribe(client)


async def test_a_server_that_is_away_is_transient():
    async with KinesisClient(Properties({**ACCESS, "aws.endpoint": "http://127.0.0.1:1"})) as client:
        with pytest.raises(TransientError):
            await subscribe(client)


@pytest.mark.parametrize("asked", ["HTTP2", "http2"])
def test_without_the_extra_the_error_names_it(monkeypatch, asked):
    monkeypatch.setitem(__import__("sys").modules, "recordpublisher.publishers.kinesis.http2.http2_sender", None)
    with pytest.raises(ConfigurationError, match=r"aws.http.protocol.version.*recordpublisher\[http2\]"):
        KinesisClient(Properties({**ACCESS, "aws.http.protocol.version": asked, "aws.region": "eu-west-1"}))
