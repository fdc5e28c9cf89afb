"""Reads of a batch read's task that end as they begin."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from recordpublisher.fetcher.pipeline.bounded_runs import BoundedResult
from recordpublisher.plugins.spark.batch_read import PUBLISHER, BeginRead


def at_once(read: Callable[..., BoundedResult]) -> BeginRead:
    """Return a function that begins `read`, and has its result or error at once."""

    def begin(shards, bounds, sink):
        future: Future[BoundedResult] = Future()
        try:
            future.set_result(read(shards, bounds, sink, PUBLISHER))
        except Exception as error:
            future.set_exception(error)
        return future

    return begin
