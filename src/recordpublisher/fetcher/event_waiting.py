"""wait_at_most: waits for an event, with a limit."""

import asyncio


async def wait_at_most(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait for the event, for at most this time (None: without limit). Returns whether it is set."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
