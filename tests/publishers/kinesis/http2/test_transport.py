"""The transport against a server that sends exactly what a test has scripted."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from recordpublisher.publishers.errors import ConfigurationError, TransientError
from recordpublisher.publishers.kinesis import KinesisClient
from recordpublisher.publishers.kinesis.error_mapping import StreamLostError
from recordpublisher.publishers.kinesis.http2 import Http2Stream
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shards import Shard

from servers.event_frames import event, initial_response, wire_record
from servers.fast_time import run_fast
from servers.http2.server import http2_server
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


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 # the condition has no event to wait for
            await asyncio.sleep(0.01)


async def test_events_of_two_subscriptions_share_a_connection():
    async with served() as (server, client):
        subscriptions = [await subscribe(client, number) for number in range(2)]
        (peer,) = server.connections
        for stream_id, sequence in zip(peer.streams, "45", strict=True):
            peer.send(stream_id, initial_response() + an_event(wire_record(b"data", sequence)), end=True)
        for subscription, sequence in zip(subscriptions, "45", strict=True):
            (response,) = [response async for response in subscription]
            assert response.records[0].sequence_number == sequence


async def test_f1_a_subscription_beyond_the_servers_limit_gets_another_connection():
    async with served(streams=2) as (server, client):
        await asyncio.gather(*(subscribe(client, number) for number in range(5)))
        assert [len(peer.streams) for peer in server.connections] == [2, 2, 1]


async def test_the_stream_slot_of_a_closed_subscription_is_reused():
    async with served(streams=1) as (server, client):
        first = await subscribe(client)
        await first.close()
        await subscribe(client)
        (peer,) = server.connections
        await until(lambda: peer.resets == [(peer.streams[0], 8)])
        assert len(peer.streams) == 2


async def test_a_server_that_allows_no_streams_is_an_error():
    async with served(streams=0) as (_, client):
        with pytest.raises(TransientError, match="allows no streams"):
            await subscribe(client)


async def test_f1_an_unread_subscription_holds_one_window_and_stalls_no_other():
    async with served(flood=True) as (server, client):
        unread, read = (await subscribe(client), await subscribe(client, 1))
        (peer,) = server.connections
        held, busy = peer.streams
        for stream_id in peer.streams:
            peer.send_all_allowed(stream_id)
        peer.flush()
        for _ in range(200):
            await read._response.readany()
        assert server.sent[held] == 128 * 1024
        assert server.sent[busy] > 10 * 128 * 1024
        assert unread._response.unacknowledged_bytes == 128 * 1024
        await unread._response.readany()
        await unread._response.readany()  # reading opens the window again, and the stream continues
        assert server.sent[held] > 128 * 1024


async def test_unread_bytes_of_a_closed_subscription_are_acknowledged_on_its_connection():
    async with served(flood=True) as (server, client):
        subscription = await subscribe(client)
        (peer,) = server.connections
        connection = subscription._response._flow_control
        peer.send_all_allowed(peer.streams[0])
        peer.flush()
        await until(lambda: subscription._response.unacknowledged_bytes == 128 * 1024)
        window = connection._h2._inbound_flow_control_window_manager
        assert window._bytes_processed == 0
        await subscription.close()
        assert (window._bytes_processed, subscription._response.unacknowledged_bytes) == (128 * 1024, 0)


@pytest.mark.parametrize("how", ["reset", "goaway", "drop"])
async def test_a_lost_stream_is_transient_after_the_events_before_it(how):
    async with served() as (server, client):
        subscription = await subscribe(client)
        (peer,) = server.connections
        peer.send(peer.streams[0], initial_response() + an_event(wire_record(b"data", "4")))
        assert (await anext(subscription)).records[0].data == b"data"
        if how == "reset":
            peer.h2.reset_stream(peer.streams[0], error_code=2)
        elif how == "goaway":
            peer.h2.close_connection()
        else:
            peer.transport.abort()
        peer.flush()
        with pytest.raises(TransientError, match="StreamLostError"):
            await anext(subscription)
        await subscribe(client, 1)
        assert len(server.connections) == (1 if how == "reset" else 2)


async def test_a_body_that_ends_inside_a_frame_is_transient():
    async with served() as (server, client):
        subscription = await subscribe(client)
        (peer,) = server.connections
        peer.send(peer.streams[0], an_event(wire_record(b"data", "4"))[:-7], end=True)
        with pytest.raises(TransientError, match="inside a frame"):
            await anext(subscription)


async def test_frames_without_data_do_not_end_the_stream_and_their_padding_is_acknowledged():
    async with served() as (server, client):
        subscription = await subscribe(client)
        (peer,) = server.connections
        reading = asyncio.create_task(anext(subscription))
        for _ in range(4):
            peer.send(peer.streams[0], b"")
            peer.h2.send_data(peer.streams[0], b"", pad_length=255)
            peer.flush()
        window = subscription._response._flow_control._h2._inbound_flow_control_window_manager
        await until(lambda: window._bytes_processed == 4 * 256)
        peer.send(peer.streams[0], initial_response() + an_event(wire_record(b"data", "4")))
        assert (await reading).records[0].data == b"data"


async def test_a_cancelled_read_loses_nothing():
    async with served() as (server, client):
        subscription = await subscribe(client)
        (peer,) = server.connections
        whole = initial_response() + an_event(wire_record(b"data", "4"))
        peer.send(peer.streams[0], whole[:-9])
        reading = asyncio.create_task(anext(subscription))
        await until(lambda: subscription._frames._buffered_bytes and not subscription._response._chunks)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        peer.send(peer.streams[0], whole[-9:])
        assert (await anext(subscription)).records[0].data == b"data"


async def test_a_cancelled_subscribe_releases_its_stream():
    async with served() as (server, client):
        await subscribe(client)
        (peer,) = server.connections
        peer.silent = True
        opening = asyncio.create_task(subscribe(client, 1))
        connection = next(iter(client._transports.for_stream(None)._http2._pools.values()))._connections[0]
        await until(lambda: len(connection._streams) == 2)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert len(connection._streams) == 1


def test_a_connection_that_does_not_respond_gets_no_new_subscription():
    async def main():
        async with served() as (server, client):
            await subscribe(client)
            server.connections[0].silent = True
            await asyncio.sleep(6)
            await subscribe(client, 1)
            assert [len(peer.streams) for peer in server.connections] == [1, 1]

    run_fast(main())


def test_a_silent_connection_that_responds_to_a_ping_is_reused():
    async def main():
        async with served() as (server, client):
            await subscribe(client)
            await asyncio.sleep(6)
            await subscribe(client, 1)
            assert [len(peer.streams) for peer in server.connections] == [2]

    run_fast(main())


async def test_close_ends_open_subscriptions_and_closes_every_connection():
    async with served(streams=1) as (server, client):
        subscriptions = [await subscribe(client, number) for number in range(2)]
        reading = asyncio.create_task(anext(subscriptions[0]))
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(TransientError, match="closed"):
            await reading
        await until(lambda: all(peer.transport.is_closing() for peer in server.connections))


async def test_the_error_for_an_endpoint_with_http1_only_says_so():
    async with (
        stub_and_client() as (stub, _),
        KinesisClient(Properties({**ACCESS, "aws.endpoint": stub.url})) as client,
    ):
        with pytest.raises(ConfigurationError, match=r"aws.http.protocol.version.*responds in HTTP/1.1"):
            await subscribe(client)


async def test_a_server_that_accepts_and_says_nothing_is_transient_after_the_deadline_of_a_call():
    async def say_nothing(reader, writer):
        await reader.read()
        writer.close()

    silent = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    at = {"aws.endpoint": f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}", "aws.request.timeout": "50ms"}
    async with silent, KinesisClient(Properties({**ACCESS, **at})) as client, asyncio.timeout(10):
        with pytest.raises(TransientError, match="TimeoutError"):
            await subscribe(client)


async def test_an_unreachable_server_is_transient():
    async with KinesisClient(Properties({**ACCESS, "aws.endpoint": "http://127.0.0.1:1"})) as client:
        with pytest.raises(TransientError):
            await subscribe(client)


@pytest.mark.parametrize("protocol", ["HTTP2", "http2"])
def test_the_error_without_the_extra_names_it(monkeypatch, protocol):
    monkeypatch.setitem(__import__("sys").modules, "recordpublisher.publishers.kinesis.http2", None)
    with pytest.raises(ConfigurationError, match=r"aws.http.protocol.version.*pip install .*\[http2\]"):
        KinesisClient(Properties({**ACCESS, "aws.http.protocol.version": protocol, "aws.region": "eu-west-1"}))


async def test_where_the_sdk_uses_a_proxy_the_subscription_is_refused_and_never_direct(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://me:hunter2@127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with served() as (server, client):
        with pytest.raises(ConfigurationError, match=r"HTTP_PROXY.*NO_PROXY") as raised:
            await subscribe(client)
        assert not server.connections
    assert "hunter2" not in str(raised.value)


async def test_a_host_in_no_proxy_is_connected_directly(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    async with served() as (server, client):
        await subscribe(client)
        (peer,) = server.connections
        await client.close()
        await until(peer.transport.is_closing)


# One stream of a connection: a response that is none ends this stream, and no other.


class Connection:
    """Keeps which streams were cancelled."""

    def __init__(self):
        self.cancelled = []

    def acknowledge(self, stream_id, length):
        pass

    def reset(self, stream_id):
        self.cancelled.append(stream_id)


@pytest.mark.parametrize("status", [b"x", b"", b"000", b"2000", b"-20"], ids=repr)
async def test_a_status_that_is_no_number_of_three_digits_cancels_the_stream(status):
    connection = Connection()
    stream = Http2Stream(connection, 3)
    stream.on_headers([(b":status", status), (b"a", b"b")])
    with pytest.raises(StreamLostError, match="not an HTTP status"):
        await stream.wait_for_headers()
    assert connection.cancelled == [3]
