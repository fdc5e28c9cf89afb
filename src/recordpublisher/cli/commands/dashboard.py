"""`recordpublisher dashboard`: a page that shows any job, from its stored positions and the tips of its shards."""

from __future__ import annotations

import asyncio

from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.properties.job_properties import (
    JOB_NAME,
)
from recordpublisher.publishers.properties.properties import Properties

from ..execution import errors_naming_options, print_note, run_until_signal
from ..options import (
    JobProperties,
    Port,
    with_properties,
)
from ..stored_positions import job_state_reader, open_probes

PORT = 8790
INTERVAL_SECONDS = 5.0
"""The time between two readings (seconds), as with `lag --watch`.

Kinesis allows five read calls a second for each shard. A reading takes up to two of them.
"""

HISTORY_INTERVAL_SECONDS = 30.0
"""The time between two readings while no page is open (seconds). A page that is opened later shows them in its charts."""


@with_properties
def dashboard(
    properties: JobProperties,
    port: Port = PORT,
) -> None:
    """Serve a page on loopback, until Ctrl-C: lag, watermark, idleness and the time until records are lost, for each shard of a job.

    The command reads the job's stored positions and the tips of its shards, and changes nothing. It reads every 5 seconds while a page is
    open, otherwise every 30 seconds. Rates, and whether alignment holds a shard back, are shown as -. They are on the page of `run
    --dashboard`.

    Example: recordpublisher dashboard job.properties --port 0
    """
    with errors_naming_options("port"):
        run_until_signal(_serve(properties, port))


async def _serve(properties: Properties, port: int) -> None:
    from recordpublisher.plugins.dashboard.server import DashboardServer, History
    from recordpublisher.plugins.dashboard.snapshots import JoinedSnapshots, StoredSnapshots
    from recordpublisher.plugins.runtime.stream_names import streams_of

    clock = SystemClock()
    async with open_probes(properties, streams_of(properties), job_state_reader(properties, use_sink=True)) as probes:
        sources = [StoredSnapshots(probe, clock) for probe in probes]
        snapshots = JoinedSnapshots(sources, clock, INTERVAL_SECONDS, properties.value(JOB_NAME))
        server = DashboardServer(snapshots, History(snapshots, clock, HISTORY_INTERVAL_SECONDS))
        print_note(f"the dashboard is at {await server.open(port)}")
        try:
            await asyncio.Event().wait()
        finally:
            await server.close()
