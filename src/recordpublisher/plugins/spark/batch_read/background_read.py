"""Reads the shards of a batch read's task in the background, while Spark handles rows that were read before."""

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Protocol

from recordpublisher.fetcher.pipeline.bounds import BoundedResult, Bounds
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.plugins.runtime.bounded_reader import BoundedReader
from recordpublisher.publishers.shards import Shard

from ..columns.arrow_rows import ArrowRows
from ..options.spark_options import SparkOptions
from ..process.python_worker import worker_loop
from ..service.efo_consumers import task_properties
from ..source.task_read import endless_retries

PUBLISHER = "POLLING"
"""A subscription would be lost between two windows."""


class BeginRead(Protocol):
    """Begins to read shards within bounds into `sink`, and does not wait for the end."""

    def __call__(self, shards: Mapping[Shard, ShardState], bounds: Bounds, sink: ArrowRows) -> Future[BoundedResult]:
        """Return a future with the position of each shard at the end. Cancel it to end the read."""


def background_reader(options: SparkOptions) -> BeginRead:
    """Return a function that reads with a fetcher on the worker's loop, whose clients stay open from window to window.

    Call both only in the thread that runs Spark's tasks.
    """
    properties = endless_retries(task_properties(options.properties, {}))
    loop = worker_loop()
    reader = loop.cached((PUBLISHER, tuple(sorted(properties.items()))), lambda: BoundedReader(properties, PUBLISHER))

    def begin(shards: Mapping[Shard, ShardState], bounds: Bounds, sink: ArrowRows) -> Future[BoundedResult]:
        future = loop.begin(reader.read(shards, sink, bounds))
        future.add_done_callback(lambda _: loop.freeze_heap())
        return future

    return begin
