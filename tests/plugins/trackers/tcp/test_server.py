"""What the tracker says and does by the clock."""

import asyncio
import logging

from recordpublisher.plugins.trackers.tcp import server as server_module
from recordpublisher.plugins.trackers.tcp.server import TrackerServer

from processes.tracker_clients import TOKEN, Stranger, a_job, until


async def test_a_line_a_minute_says_who_is_there_and_who_was_refused(server, caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    stranger = await Stranger.comes(server)
    stranger.writer.write(b"\xff" * 10)
    assert await stranger.is_hung_up_on()
    async with a_job(server.address, 2) as job:
        a, b = await job.start_all()
        await until(lambda: a.current() == 5, (a, 5), (b, 6))
        monkeypatch.setattr(server_module, "TALK_SECONDS", 0.0)
        await until(lambda: "reports/s" in caplog.text, (a, 5), (b, 6))

    (line, *_) = [record.message for record in caplog.records if "reports/s" in record.message]
    assert line.startswith("1 groups, 2 subtasks, 2 connections, ")
    assert line.endswith("refused: malformed 1")


async def test_who_is_left_out_is_named(server, caplog):  # W6
    async with a_job(server.address, 2, **{"flink.watermark.tracker.timeout": 300}) as job:
        a, b = await job.start_all()
        await until(lambda: a.current() == 5, (a, 5), (b, 6))
        await until(lambda: "group 'g': subtasks 1 were not heard of" in caplog.text, (a, 5))


async def test_after_its_own_suspension_it_hangs_up_on_nobody(monkeypatch):
    async with TrackerServer(TOKEN) as server, a_job(server.address, 1) as job:
        one = await job.start(0)
        await until(lambda: one.current() == 5, (one, 5))
        link = one._link
        for visitor in server._known:
            visitor.last_heard -= 1_000_000
        server._looked -= 1_000
        server._look_around(server._clock.monotonic())
        await until(lambda: one.current() == 9, (one, 9))

        assert one._link is link


async def test_trouble_inside_does_not_end_the_housekeeping(server, caplog, monkeypatch):
    asked = asyncio.Event()

    def broken(now):
        asked.set()
        raise RuntimeError("inside")

    monkeypatch.setattr(server.offices, "look", broken)
    await asked.wait()
    asked.clear()
    await asked.wait()

    assert "the tracker goes on, but look at this" in caplog.text
