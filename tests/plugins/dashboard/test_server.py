"""The server of snapshots: for this machine only."""

import json

import aiohttp
import pytest

from recordpublisher.plugins.dashboard.server import DashboardServer
from recordpublisher.plugins.lag.job_snapshot import JobSnapshot
from recordpublisher.publishers.errors import ConfigurationError, StateError


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


async def test_it_listens_on_loopback(url):
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
