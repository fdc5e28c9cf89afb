"""A drain that waits says so."""

import asyncio

from recordpublisher.plugins.runtime.jobs.termination import tell_what_drains
from recordpublisher.testing import run_virtual


def test_a_drain_that_waits_says_for_what_and_how_to_end_it(caplog):
    async def drain_for_25_seconds():
        telling = asyncio.create_task(tell_what_drains(3, "map", lambda: "7 records are not handled"))
        await asyncio.sleep(25)
        telling.cancel()

    run_virtual(drain_for_25_seconds())

    first, second = caplog.messages
    assert first.startswith(
        "subtask 3 has been draining for 10 s: it waits for the sink 'map' (7 records are not handled)"
    )
    assert "A second signal ends it at once" in first
    assert "draining for 20 s" in second
