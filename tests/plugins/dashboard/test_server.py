"""The server of snapshots: for this machine only."""

import asyncio
import json

import aiohttp
import pytest

from recordpublisher.plugins.dashboard.server import HISTORY_SECONDS, DashboardServer, History, HistoryPoint
from recordpublisher.plugins.lag.job_snapshot import JobSnapshot, ShardSnapshot
from recordpublisher.publishers.errors import ConfigurationError, StateError
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual


class Source:
    """Answers with an empty job, or fails."""

    asked = 0
    error = None

    async def snapshot(self):
        self.asked += 1
        if self.error is not None:
            raise self.error
        return JobSnapshot(time_ms=7, shards=[])


@pytest.fixture
def source():
    return Source()


@pytest.fixture
async def url(source):
    server = DashboardServer(source)
    yield await server.open(0)
    await server.close()


async def get(url, host=None):
    headers = {} if host is None else {"Host": host}
    async with aiohttp.ClientSession() as session, session.get(f"{url}/snapshot.json", headers=headers) as response:
        return response.status, await response.text()


async def test_each_request_reads_a_snapshot(url, source):
    assert source.asked == 0
    status, text = await get(url)

    assert (status, json.loads(text)["timeMs"], source.asked) == (200, 7, 1)


async def test_a_browser_neither_keeps_a_response_nor_guesses_its_type(url):
    async with aiohttp.ClientSession() as session, session.get(f"{url}/snapshot.json") as response:
        assert response.headers["Cache-Control"] == "no-store"
        assert response.headers["X-Content-Type-Options"] == "nosniff"


async def test_c4_it_listens_on_loopback(url):
    assert url.startswith("http://127.0.0.1:")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8080", "127.0.0.1:1", "[::1]:8080", "[::1]"])
async def test_a_name_of_this_machine_is_accepted(url, host):
    assert (await get(url, host))[0] == 200


@pytest.mark.parametrize(
    "host", ["example.com", "localhost.example.com:80", "127.0.0.1.example.com", "", "10.0.0.1:80"]
)
async def test_a_foreign_host_is_refused(url, source, host):
    status, text = await get(url, host)

    assert (status, source.asked) == (403, 0)
    assert "localhost" in text


async def test_a_job_that_cannot_be_read_is_said(url, source):
    source.error = StateError("no state is stored there")

    assert await get(url) == (503, '{"error":"no state is stored there"}')


async def test_a_port_in_use_is_an_error_that_names_it(url, source):
    port = int(url.rpartition(":")[2])

    with pytest.raises(ConfigurationError, match=f"'port' is {port}: Address already in use. Valid: a free"):
        await DashboardServer(source).open(port)


def snapshot(time_ms, *values):
    shards = [
        ShardSnapshot(stream="orders", shard=str(at), records_per_second=rate, lag_ms=lag)
        for at, (rate, lag) in enumerate(values)
    ]
    return JobSnapshot(time_ms=time_ms, shards=shards)


class SourceHistory:
    """Gives what it is told to, or raises it."""

    def __init__(self, *given):
        self.given = list(given)

    async def snapshot(self):
        found = self.given.pop(0) if len(self.given) > 1 else self.given[0]
        if isinstance(found, Exception):
            raise found
        return found


def points_after(seconds, source, interval_seconds=10):
    async def run():
        history = History(source, VirtualClock(), interval_seconds)
        keeping = asyncio.create_task(history.run())
        await asyncio.sleep(seconds)
        keeping.cancel()
        return history.points

    return run_virtual(run())


def test_a_point_has_the_sum_of_the_rates_and_the_largest_lag():
    (point,) = points_after(1, SourceHistory(snapshot(5, (1.5, 40), (2.0, 70), (None, None))))

    assert point == HistoryPoint(5, 3.5, 70)


def test_what_is_not_known_is_no_zero():
    (point,) = points_after(1, SourceHistory(snapshot(5, (None, None))))

    assert point == HistoryPoint(5, None, None)


def test_a_job_that_cannot_be_read_is_a_gap_and_reading_goes_on(caplog):
    points = points_after(
        25, SourceHistory(snapshot(5, (1.0, 1)), StateError("away"), ValueError("odd"), snapshot(9, (2.0, 2)))
    )

    assert [(each.records_per_second, each.lag_ms) for each in points] == [(1.0, 1), (None, None), (None, None)]
    assert [each.exc_info[0] for each in caplog.records] == [ValueError]


def test_only_the_last_half_an_hour_is_kept():
    points = points_after(2 * HISTORY_SECONDS, SourceHistory(snapshot(5, (1.0, 1))))

    assert len(points) == HISTORY_SECONDS / 10
