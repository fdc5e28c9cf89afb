"""A tracker on a real socket."""

import pytest

from recordpublisher.plugins.trackers.tcp.server import TrackerServer

from processes.tracker_clients import TOKEN, Stranger


@pytest.fixture
async def server():
    async with TrackerServer(TOKEN) as made:
        yield made


@pytest.fixture(autouse=True)
async def strangers():
    yield
    Stranger.all_go()
