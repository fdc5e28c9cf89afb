"""What the tracker logs and does by the clock."""

import asyncio
import logging
import socket

from recordpublisher.plugins.trackers.tcp import server as server_module
from recordpublisher.plugins.trackers.tcp.server import TrackerServer

from processes.tracker_clients import TOKEN, RawClient, running_job, wait_until


async def test_a_line_a_minute_has_counts_of_subtasks_and_rejections(server, caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    client = await RawClient.connect(server)
    client.writer.write(b"\xff" * 10)
    assert await client.is_disconnected()
    async with running_job(server.address, 2) as job:
        a, b = await job.start_all()
        await wait_until(lambda: a.current() == 5, (a, 5), (b, 6))
        monkeypatch.setattr(server_module, "STATS_INTERVAL_SECONDS", 0.0)
        await wait_until(lambda: "heartbeats/s" in caplog.text, (a, 5), (b, 6))

    (line, *_) = [record.message for record in caplog.records if "heartbeats/s" in record.message]
    assert line.startswith("1 groups, 2 subtasks, 2 connections, ")
    assert line.endswith("rejected: malformed 1")


async def test_a_timed_out_subtask_is_named(server, caplog):  # W6
    async with running_job(server.address, 2, **{"flink.watermark.tracker.timeout": 300}) as job:
        a, b = await job.start_all()
        await wait_until(lambda: a.current() == 5, (a, 5), (b, 6))
        await wait_until(lambda: "group 'g': subtasks 1 timed out" in caplog.text, (a, 5))


async def test_after_its_own_suspension_it_disconnects_nobody(monkeypatch):
    async with TrackerServer(TOKEN) as server, running_job(server.address, 1) as job:
        one = await job.start(0)
        await wait_until(lambda: one.current() == 5, (one, 5))
        connection = one._connection
        for connected in server._authenticated:
            connected.last_request_at -= 1_000_000
        server._maintained_at -= 1_000
        server._maintain(server._clock.monotonic())
        await wait_until(lambda: one.current() == 9, (one, 9))

        assert one._connection is connection


async def test_frames_do_not_wait_for_the_acknowledgement_of_earlier_ones(server):
    await RawClient.authenticated(server)
    (connection,) = server._authenticated

    assert connection._transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_an_error_does_not_end_the_maintenance(server, caplog, monkeypatch):
    called = asyncio.Event()

    def broken(now):
        called.set()
        raise RuntimeError("inside")

    monkeypatch.setattr(server.groups, "expire", broken)
    await called.wait()
    called.clear()
    await called.wait()

    assert "maintenance of the tracker failed" in caplog.text
