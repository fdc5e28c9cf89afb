"""A tracker on a real socket."""

import pytest
from tracker_visits import TOKEN, Stranger

from recordpublisher.plugins.trackers.tcp.server import TrackerServer


@pytest.fixture
async def server():
    async with TrackerServer(TOKEN) as made:
        yield made


@pytest.fixture(autouse=True)
async def strangers():
    yield
    Stranger.all_go()
