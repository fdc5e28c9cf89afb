"""Synchronous callers: one coroutine, run to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine from synchronous code, with or without a loop running in this thread, and answer its result.

    With one wire implementation there is one error translation, one decoder and one set of tests, so the synchronous side needs
    no boto3. Inside a running loop a short-lived thread with a loop of its own does the work; the caller, being synchronous, blocks.
    The coroutine must make its own client (`async with KinesisClient(...)`): clients belong to the loop that opened them.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="recordpublisher-sync") as thread:
        return thread.submit(asyncio.run, coroutine).result()
