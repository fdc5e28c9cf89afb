"""The snapshots of a running job, read over HTTP."""

import asyncio
import signal
import sys

import pytest

from recordpublisher.plugins.dashboard.http_snapshots import HttpSnapshots
from recordpublisher.plugins.dashboard.server import DashboardServer
from recordpublisher.plugins.lag.job_snapshot import JobSnapshot, ShardSnapshot
from recordpublisher.publishers.errors import RecordPublisherError, StateError

from processes.command_line import process_environment

SHARDS = [ShardSnapshot(stream=name, shard="a", is_held=True) for name in ("orders", "refunds")]


class Source:
    """Answers with a job of two streams, or fails."""

    error = None

    async def snapshot(self):
        if self.error is not None:
            raise self.error
        return JobSnapshot(time_ms=7, shards=SHARDS, alignment="They wait.")


@pytest.fixture
def source():
    return Source()


@pytest.fixture
async def url(source):
    server = DashboardServer(source)
    yield await server.open(0)
    await server.close()


@pytest.mark.parametrize("path", ["", "/", "/snapshot.json"])
@pytest.mark.parametrize("stream", ["orders", "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"])
async def test_the_shards_of_the_stream_are_read(url, path, stream):
    snapshot = await HttpSnapshots(url + path, [stream]).snapshot()
    assert await HttpSnapshots(url.removeprefix("http://") + path, [stream]).snapshot() == snapshot

    assert snapshot == JobSnapshot(time_ms=7, shards=SHARDS[:1], alignment="They wait.")


@pytest.mark.slow
async def test_the_command_shows_them(url):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "recordpublisher", "lag", "orders", "--live", url, "--watch"),
        stdout=asyncio.subprocess.PIPE,
        env=process_environment(),
    )
    shown = await process.stdout.readuntil(b"LOST IN\n")
    row = await process.stdout.readline()
    process.send_signal(signal.SIGINT)
    await process.communicate()

    assert process.returncode == 0
    assert b"They wait." in shown
    assert row.split() == [b"a", b"-", b"-", b"-", b"-", b"-", b"yes", b"-"]


@pytest.mark.slow
async def test_without_watch_the_command_shows_them_once(url):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "recordpublisher", "lag", "orders", "--live", url),
        stdout=asyncio.subprocess.PIPE,
        env=process_environment(),
    )
    shown, _ = await process.communicate()

    assert process.returncode == 0
    assert shown.count(b"They wait.") == 1


async def test_another_stream_is_an_error_that_names_those_of_the_job(url):
    with pytest.raises(RecordPublisherError, match="the job does not read 'ordres'; it reads orders, refunds"):
        await HttpSnapshots(url, ["ordres"]).snapshot()


async def test_the_error_of_the_job_is_passed_on(url, source):
    source.error = StateError("no subtask of the job responds")

    with pytest.raises(RecordPublisherError, match=r"^no subtask of the job responds$"):
        await HttpSnapshots(url, ["orders"]).snapshot()


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "nonsense", "http://127.0.0.1:port"])
async def test_a_wrong_url_is_an_error_that_names_it(url):
    with pytest.raises(RecordPublisherError, match=f"no running job serves {url}/snapshot.json: "):
        await HttpSnapshots(url, ["orders"]).snapshot()


async def test_a_wrong_url_is_named_without_its_password():
    with pytest.raises(RecordPublisherError, match="no running job serves http://me:") as raised:
        await HttpSnapshots("http://me:hunter2@127.0.0.1:port", ["orders"]).snapshot()
    assert "hunter2" not in str(raised.value)
