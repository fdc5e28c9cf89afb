"""W6, W9a, W10: subtasks that share a global watermark over real sockets."""

import asyncio
import logging

import pytest

from recordpublisher.fetcher.coordination.watermark_tracker import SubtaskStatus
from recordpublisher.plugins.trackers.tcp.server import TrackerServer
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.errors import ConfigurationError

from processes.tracker_clients import TOKEN, a_free_port, report, running_job, wait_until

LONG = {"flink.watermark.sync.interval": 60_000}


async def test_the_value_is_the_lowest_of_all(server):
    async with running_job(server.address, 3) as job:
        a, b, c = await job.start_all()
        await wait_until(lambda: a.current() == b.current() == c.current() == 5, (a, 5), (b, 7), (c, 9))
        report(c, None, SubtaskStatus.IDLE)
        await wait_until(lambda: a.current() == 8, (a, 11), (b, 8))

    assert c.current() is not None
    assert a.is_reachable


async def test_an_expected_subtask_keeps_the_value_from_rising_and_is_named(server):
    async with running_job(server.address, 2) as job:
        one = await job.start(0)
        await wait_until(lambda: one.lowest_subtask() == 1, (one, 5))

        assert one.current() is None


async def test_a_subtask_that_left_is_not_waited_for(server):
    async with running_job(server.address, 2) as job:
        a, b = await job.start_all()
        await wait_until(lambda: a.current() == 5, (a, 9), (b, 5))
        report(b, None, SubtaskStatus.LEFT)
        await b.close()
        await wait_until(lambda: a.current() == 9, (a, 9))


async def test_a_subtask_that_left_has_disconnected(server):
    async with running_job(server.address, 2) as job:
        a, b = await job.start_all()
        await wait_until(lambda: a.current() == 5, (a, 9), (b, 5))
        connection = b._connection
        await b.close()
        assert connection._transport.is_closing()


async def test_a_silent_subtask_times_out_and_is_named(server):
    async with running_job(server.address, 2, **{"flink.watermark.tracker.timeout": 300}) as job:
        a, b = await job.start_all()
        await wait_until(lambda: a.current() == 5, (a, 9), (b, 5))
        await wait_until(lambda: a.current() == 9, (a, 9))

        assert a.timed_out_subtasks() == (1,)


async def test_a_held_subtask_is_notified_without_waiting_for_a_heartbeat(server):  # W9a
    called = asyncio.Event()
    async with running_job(server.address, 2, **LONG) as job:
        held, slow = await job.start_all()
        held.on_advance(called.set)
        await wait_until(lambda: slow.current() == 5, (held, 60), (slow, 5))
        held.notify_at(50)
        for watermark in range(6, 56):
            await wait_until(lambda: True, (slow, watermark))
            await asyncio.sleep(0.002)
        await wait_until(lambda: held.current() >= 50, (slow, 55))

        assert called.is_set()


async def test_a_restarted_tracker_continues_from_what_its_subtasks_know(server):  # W6
    address, port = server.address, server.port
    async with running_job(address, 2) as job:
        a, b = await job.start_all()
        await wait_until(lambda: a.current() == b.current() == 50, (a, 50), (b, 60))
        await server.close()
        await wait_until(lambda: a._connection is None and b._connection is None, (a, 50), (b, 60))
        assert (report(a, 51), report(b, 61)) == (50, 50), "the last value stays"
        async with TrackerServer(TOKEN, port=port) as again:
            seen = []
            await wait_until(lambda: seen.append(a.current()) or a.current() == 61, (a, 70), (b, 61))

            assert seen == sorted(seen)
            assert again.groups.connected_subtasks == 2


async def test_without_a_tracker_nothing_raises_and_one_warning_is_logged(caplog):  # W10
    caplog.set_level(logging.WARNING)
    async with running_job(f"127.0.0.1:{a_free_port()}", 1) as job:
        alone = await job.start(0)
        await wait_until(lambda: caplog.records, (alone, 5))
        await asyncio.sleep(0.5)

        assert (alone.current(), alone.is_reachable) == (None, False)
        assert len(caplog.records) == 1
        assert "subtask 0 continues with the global watermark None" in caplog.text


async def test_a_wrong_token_is_rejected_and_never_logged(server, caplog):  # C3
    caplog.set_level(logging.DEBUG)
    async with running_job(server.address, 1, **{"flink.watermark.tracker.token": "guess me"}) as job:
        guesser = await job.start(0)
        await wait_until(lambda: "it rejects the token (flink.watermark.tracker.token)" in caplog.text, (guesser, 5))

    assert server.groups.connected_subtasks == len(server.groups) == 0
    assert "guess me" not in caplog.text
    assert TOKEN not in caplog.text


async def test_a_tracker_that_never_responds_is_disconnected_and_tried_again():  # half-open connections
    connections = []

    def silent(reader, writer):
        connections.append(writer)

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with running_job(f"127.0.0.1:{port}", 1, **{"flink.watermark.tracker.timeout": 300}) as job:
        waiting = await job.start(0)
        await wait_until(lambda: len(connections) >= 3, (waiting, 5))
    for writer in connections:
        writer.close()
    server.close()


async def test_a_server_of_another_protocol_is_disconnected(caplog):
    async def website(reader, writer):
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(website, "127.0.0.1", 0)
    async with running_job(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", 1) as job:
        lost = await job.start(0)
        await wait_until(lambda: "it does not speak the tracker protocol" in caplog.text, (lost, 5))
    server.close()


async def test_a_second_process_for_one_subtask_replaces_the_first(server, caplog):
    async with running_job(server.address, 1) as job:
        first = await job.start(0)
        await wait_until(lambda: first.current() == 5, (first, 5))
        second = await job.start(0)
        await wait_until(lambda: second.current() is not None, (second, 3))
        await wait_until(lambda: "another process reports for this subtask" in caplog.text, (first, 70), (second, 3))
        await wait_until(lambda: second.current() == 80, (first, 70), (second, 80))

        assert first.current() == 5
        assert [record.levelname for record in caplog.records] == ["ERROR"]


async def test_a_start_after_a_process_whose_clock_was_ahead_is_no_error(server, caplog):
    class ClockAhead(SystemClock):
        def now_ms(self):
            return super().now_ms() + 60_000

    async with running_job(server.address, 1) as job:
        ahead = await job.start(0, ClockAhead())
        await wait_until(lambda: ahead.current() == 5, (ahead, 5))
        await ahead.close()
        again = await job.start(0)
        await wait_until(lambda: again.current() == 7, (again, 7))

    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


async def test_two_groups_are_independent(server):
    async with (
        running_job(server.address, 1) as job,
        running_job(server.address, 1, **{"flink.watermark.group": "h"}) as other,
    ):
        a, b = await job.start(0), await other.start(0)
        await wait_until(lambda: (a.current(), b.current()) == (5, 90), (a, 5), (b, 90))


async def test_a_killed_job_that_starts_again_begins_at_what_it_restored(server):  # W6
    async with running_job(server.address, 2) as job:
        for tracker, watermark in zip(await job.start_all(), (50, 60), strict=True):
            tracker.start_at(40)
            report(tracker, watermark)
        await wait_until(
            lambda: all(each.current() == 50 for each in job.trackers), *((each, 50) for each in job.trackers)
        )
        for tracker in job.trackers:
            tracker._task.cancel()
            tracker._connection.abort()
        await wait_until(lambda: server.groups.connected_subtasks == 0)
        again = await job.start(0)
        again.start_at(20)
        await wait_until(lambda: again.current() is not None, (again, 25))

        assert again.current() == 20


async def test_finished_shards_reach_the_subtask_that_queries(server):  # S2
    async with running_job(server.address, 2) as job:
        owner, asking = await job.start_all()
        owner.announce_finished({"s/parent": 5})
        assert not asking.is_finished("s/parent")
        await wait_until(lambda: asking.is_finished("s/parent"), (owner, 5), (asking, 5))

        assert not asking.is_finished("s/other")


async def test_an_address_has_a_host_and_a_port():  # C2
    with pytest.raises(ConfigurationError, match="host:port"):
        async with running_job("127.0.0.1", 1) as job:
            await job.start(0)


async def test_ipv6_addresses_are_in_brackets():
    async with TrackerServer(TOKEN, host="::1") as server, running_job(server.address, 1) as job:
        assert server.address.startswith("[::1]:")
        one = await job.start(0)
        await wait_until(lambda: one.current() == 5, (one, 5))
