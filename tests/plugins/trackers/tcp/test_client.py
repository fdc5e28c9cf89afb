"""W6, W9a, W10: subtasks that share a global watermark over real sockets."""

import asyncio
import logging

import pytest

from recordpublisher.fetcher.coordination.watermark_tracker import SubtaskStatus
from recordpublisher.plugins.trackers.tcp.server import TrackerServer
from recordpublisher.publishers.errors import ConfigurationError

from processes.tracker_clients import TOKEN, a_free_port, a_job, says, until

LONG = {"flink.watermark.sync.interval": 60_000}


async def test_the_value_is_the_lowest_of_all(server):
    async with a_job(server.address, 3) as job:
        a, b, c = await job.start_all()
        await until(lambda: a.current() == b.current() == c.current() == 5, (a, 5), (b, 7), (c, 9))
        says(c, None, SubtaskStatus.IDLE)
        await until(lambda: a.current() == 8, (a, 11), (b, 8))

    assert c.current() is not None
    assert a.is_reachable


async def test_an_expected_subtask_holds_the_value_and_is_named(server):
    async with a_job(server.address, 2) as job:
        one = await job.start(0)
        await until(lambda: one.lowest_subtask() == 1, (one, 5))

        assert one.current() is None


async def test_who_left_is_not_waited_for(server):
    async with a_job(server.address, 2) as job:
        a, b = await job.start_all()
        await until(lambda: a.current() == 5, (a, 9), (b, 5))
        says(b, None, SubtaskStatus.LEFT)
        await b.close()
        await until(lambda: a.current() == 9, (a, 9))


async def test_who_left_has_hung_up(server):
    async with a_job(server.address, 2) as job:
        a, b = await job.start_all()
        await until(lambda: a.current() == 5, (a, 9), (b, 5))
        link = b._link
        await b.close()
        assert link._transport.is_closing()


async def test_a_silent_subtask_is_left_out_and_named(server):
    async with a_job(server.address, 2, **{"flink.watermark.tracker.timeout": 300}) as job:
        a, b = await job.start_all()
        await until(lambda: a.current() == 5, (a, 9), (b, 5))
        await until(lambda: a.current() == 9, (a, 9))

        assert a.timed_out_subtasks() == (1,)


async def test_a_held_subtask_is_told_without_waiting_for_a_heartbeat(server):  # W9a
    heard = asyncio.Event()
    async with a_job(server.address, 2, **LONG) as job:
        held, slow = await job.start_all()
        held.on_advance(heard.set)
        await until(lambda: slow.current() == 5, (held, 60), (slow, 5))
        held.notify_at(50)
        for watermark in range(6, 56):
            await until(lambda: True, (slow, watermark))
            await asyncio.sleep(0.002)
        await until(lambda: held.current() >= 50, (slow, 55))

        assert heard.is_set()


async def test_a_restarted_tracker_goes_on_from_what_its_subtasks_know(server):  # W6
    address, port = server.address, server.port
    async with a_job(address, 2) as job:
        a, b = await job.start_all()
        await until(lambda: a.current() == b.current() == 50, (a, 50), (b, 60))
        await server.close()
        await until(lambda: a._link is None and b._link is None, (a, 50), (b, 60))
        assert (says(a, 51), says(b, 61)) == (50, 50), "the last value stands"
        async with TrackerServer(TOKEN, port=port) as again:
            seen = []
            await until(lambda: seen.append(a.current()) or a.current() == 61, (a, 70), (b, 61))

            assert seen == sorted(seen)
            assert again.offices.seats == 2


async def test_without_a_tracker_nothing_raises_and_it_is_said_once(caplog):  # W10
    caplog.set_level(logging.WARNING)
    async with a_job(f"127.0.0.1:{a_free_port()}", 1) as job:
        alone = await job.start(0)
        await until(lambda: caplog.records, (alone, 5))
        await asyncio.sleep(0.5)

        assert (alone.current(), alone.is_reachable) == (None, False)
        assert len(caplog.records) == 1
        assert "subtask 0 goes on with the global watermark None" in caplog.text


async def test_a_wrong_token_is_told_and_never_logged(server, caplog):  # C3
    caplog.set_level(logging.DEBUG)
    async with a_job(server.address, 1, **{"flink.watermark.tracker.token": "guess me"}) as job:
        guesser = await job.start(0)
        await until(lambda: "it refuses the token (flink.watermark.tracker.token)" in caplog.text, (guesser, 5))

    assert server.offices.seats == len(server.offices) == 0
    assert "guess me" not in caplog.text
    assert TOKEN not in caplog.text


async def test_a_tracker_that_never_answers_is_left_and_tried_again():  # half-open connections
    connections = []

    def dumb(reader, writer):
        connections.append(writer)

    server = await asyncio.start_server(dumb, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with a_job(f"127.0.0.1:{port}", 1, **{"flink.watermark.tracker.timeout": 300}) as job:
        waiting = await job.start(0)
        await until(lambda: len(connections) >= 3, (waiting, 5))
    for writer in connections:
        writer.close()
    server.close()


async def test_one_who_speaks_another_language_is_left(caplog):
    async def website(reader, writer):
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(website, "127.0.0.1", 0)
    async with a_job(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", 1) as job:
        lost = await job.start(0)
        await until(lambda: "it does not speak as a tracker does" in caplog.text, (lost, 5))
    server.close()


async def test_a_second_process_for_one_subtask_takes_its_place(server, caplog):
    async with a_job(server.address, 1) as job:
        first = await job.start(0)
        await until(lambda: first.current() == 5, (first, 5))
        second = await job.start(0)
        await until(lambda: second.current() is not None, (second, 3))
        await until(lambda: "another process speaks for this subtask" in caplog.text, (first, 70), (second, 3))
        await until(lambda: second.current() == 80, (first, 70), (second, 80))

        assert first.current() == 5
        assert [record.levelname for record in caplog.records] == ["ERROR"]


async def test_two_groups_know_nothing_of_each_other(server):
    async with a_job(server.address, 1) as job, a_job(server.address, 1, **{"flink.watermark.group": "h"}) as other:
        a, b = await job.start(0), await other.start(0)
        await until(lambda: (a.current(), b.current()) == (5, 90), (a, 5), (b, 90))


async def test_a_killed_job_that_starts_again_begins_at_what_it_restored(server):  # W6
    async with a_job(server.address, 2) as job:
        for tracker, watermark in zip(await job.start_all(), (50, 60), strict=True):
            tracker.start_at(40)
            says(tracker, watermark)
        await until(lambda: all(each.current() == 50 for each in job.trackers), *((each, 50) for each in job.trackers))
        for tracker in job.trackers:
            tracker._task.cancel()
            tracker._link.hang_up()
        await until(lambda: server.offices.seats == 0)
        again = await job.start(0)
        again.start_at(20)
        await until(lambda: again.current() is not None, (again, 25))

        assert again.current() == 20


async def test_finished_shards_reach_who_asks(server):  # S2
    async with a_job(server.address, 2) as job:
        owner, asking = await job.start_all()
        owner.announce_finished(["s/parent"])
        assert not asking.is_finished("s/parent")
        await until(lambda: asking.is_finished("s/parent"), (owner, 5), (asking, 5))

        assert not asking.is_finished("s/other")


async def test_an_address_has_a_host_and_a_port():  # C2
    with pytest.raises(ConfigurationError, match="host:port"):
        async with a_job("127.0.0.1", 1) as job:
            await job.start(0)


async def test_ipv6_addresses_stand_in_brackets():
    async with TrackerServer(TOKEN, host="::1") as server, a_job(server.address, 1) as job:
        assert server.address.startswith("[::1]:")
        one = await job.start(0)
        await until(lambda: one.current() == 5, (one, 5))
