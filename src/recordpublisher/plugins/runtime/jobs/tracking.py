"""The tracker of a job whose subtasks are processes: started by the supervisor, unless the properties name another one."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from recordpublisher.plugins.trackers.tcp.server import TrackerServer
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.table import TRACKER, TRACKER_ADDRESS, TRACKER_TOKEN


@asynccontextmanager
async def tracked(properties: Properties) -> AsyncIterator[Properties]:
    """The properties with which subtasks in other processes find each other; a tracker listens on loopback meanwhile (C4).

    IN_PROCESS cannot reach other processes; any other tracker that the properties name is left as it is.
    """
    if (properties.value(TRACKER) or "").upper() != "IN_PROCESS":
        yield properties
        return
    token = secrets.token_hex(16)
    async with TrackerServer(token) as server:
        yield properties.merged({TRACKER.key: "TCP", TRACKER_ADDRESS.key: server.address, TRACKER_TOKEN.key: token})
