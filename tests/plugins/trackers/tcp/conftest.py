"""A tracker on a real socket."""

import pytest

from recordpublisher.plugins.trackers.tcp.server import TrackerServer

from processes.tracker_clients import TOKEN, RawClient


@pytest.fixture
async def server():
    async with TrackerServer(TOKEN) as made:
        yield made


@pytest.fixture(autouse=True)
async def raw_clients():
    yield
    RawClient.abort_all()
