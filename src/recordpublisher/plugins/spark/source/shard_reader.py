"""How a task reads: the fetcher on the worker's loop, with clients kept warm from batch to batch."""

from __future__ import annotations

from collections.abc import Mapping

from recordpublisher.fetcher.pipeline.bounds import BoundedResult, Bounds
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.plugins.runtime.bounded_reader import BoundedReader
from recordpublisher.publishers.shards import Shard

from ..arrow_rows import ArrowRows
from ..options import SparkOptions
from ..python_worker import worker_loop
from ..service.kinesis_service import task_properties
from .read_task import ReadShards


def shard_reader(options: SparkOptions, consumer_arns: Mapping[str, str]) -> ReadShards:
    """What a task reads with; publishers' factories live as long as the process."""
    properties = task_properties(options.properties, consumer_arns)
    job = tuple(sorted(properties.items()))

    def read(shards: Mapping[Shard, ShardState], bounds: Bounds, sink: ArrowRows, publisher: str) -> BoundedResult:
        loop = worker_loop()
        reader = loop.cached((publisher, job), lambda: BoundedReader(properties, publisher))
        result = loop.run(reader.read(shards, sink, bounds))
        loop.freeze_heap()
        return result

    return read
