"""Closing a job: everything that was opened, whatever the others do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from .dependencies import FetcherParts


async def close_parts(parts: FetcherParts, *more: Awaitable[None]) -> None:
    """Close publishers, tracker, sink and state store, and await `more`. Raises: the first error, when all are closed."""
    stores = [] if parts.checkpoints is None else [parts.checkpoints.close()]
    every = [parts.factory.close(), parts.tracker.close(), parts.sink.close(), *stores, *more]
    for result in await asyncio.gather(*every, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
