"""run_sync runs one coroutine from synchronous code."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine from synchronous code and return its result, with or without a running event loop in this thread.

    Synchronous callers thus use the asynchronous client, and boto3 is not needed. Inside a running loop a short-lived
    thread with its own loop does the work, and the caller blocks. The coroutine must make its own client (`async with
    KinesisClient(...)`), because a client belongs to the loop that opened it.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="recordpublisher-sync") as thread:
        return thread.submit(asyncio.run, coroutine).result()
