"""What the clients of a process share, and how long a call may take."""

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from recordpublisher.publishers.errors import TransientError
from recordpublisher.publishers.kinesis.sdk_transport import SdkTransport
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from servers.scripted_kinesis import PROPERTIES


def loader():
    return SdkTransport(Properties(PROPERTIES))._session.get_component("data_loader")


def test_the_sdks_models_are_read_once_for_the_process_and_its_data_path(monkeypatch, tmp_path):
    assert loader() is loader()
    monkeypatch.setenv("AWS_DATA_PATH", str(tmp_path))
    assert str(tmp_path) in loader().search_paths


class Sdk:
    """A client of the SDK whose response comes when a test says so."""

    def __init__(self):
        self.meta = SimpleNamespace(events=SimpleNamespace(register=lambda *_: None))
        self.response = asyncio.get_running_loop().create_future()

    async def put_records(self, **parameters):
        return await self.response


async def a_call(suspended=0.0, answered=True):
    """What a call ends with that may take 30 s, and when; the process is suspended after a second."""
    loop, sdk = asyncio.get_running_loop(), Sdk()

    @asynccontextmanager
    async def created():
        yield sdk

    given = Properties({**PROPERTIES, "aws.http.client": "SDK", "aws.request.timeout": 30_000})
    connections = SdkTransport(given, clock=VirtualClock())
    connections._create = created
    calling = asyncio.create_task(connections.call("PutRecords", Records=[]))
    await asyncio.sleep(1)
    loop.suspend(suspended)
    if answered:
        loop.call_soon(sdk.response.set_result, "response")  # a socket is read in the turn in which timers are due
    ended = (await asyncio.gather(calling, return_exceptions=True))[0]
    await connections.close()
    return ended, loop.time()


def test_a_call_has_a_deadline():
    error, seconds = run_virtual(a_call(answered=False))

    assert isinstance(error, TransientError)
    assert seconds == pytest.approx(30)


def test_what_was_answered_while_the_process_stood_still_is_read():
    """Given up, a write that arrived would be sent again."""
    assert run_virtual(a_call(suspended=600)) == ("response", 601)


def test_after_a_suspension_a_call_without_an_answer_ends_soon():
    error, seconds = run_virtual(a_call(suspended=600, answered=False))

    assert isinstance(error, TransientError)
    assert 601 < seconds <= 601 + 30
